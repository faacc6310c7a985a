-- Jobs that succeeded leave the live table for history. Only the holder of a valid lease gets that far:
-- no job but an inflight one has a token. One row of nulls says that all of them did, as they mostly do:
-- to name each of them would cost more than to find the few cases where one is missing.
-- Nothing is compared with `=` but what is to be looked for, so that no plan can look for anything else.
WITH item AS (
  SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:tokens AS text[]), CAST(:results AS bytea[]),
                       CAST(:starts AS timestamptz[])
                       -- ?placed  , CAST(:places AS tid[])
                       ) AS item (id, token, item_result, item_start
                       -- ?placed  , place
                       )
), gone AS (
  DELETE FROM th_jobs j USING item
  WHERE
  -- ?placed  j.ctid = item.place AND j.id IS NOT DISTINCT FROM item.id AND
  -- ?by_id  j.id = item.id AND
  j.lease_token IS NOT DISTINCT FROM item.token AND j.lease_expires_at > :now
  RETURNING j.id, j.type, j.queue, j.tenant_id, j.priority, j.attempts, j.deliveries, j.lease_token, j.lease_owner,
            j.due_at, j.claimed_at, COALESCE(item.item_start, j.started_at, j.claimed_at) AS started_at, j.payload,
            j.meta, j.run_at, j.expires_at, j.timeout_nanos, j.max_attempts, j.forgiven, j.last_error, j.failed_at,
            j.cancel_requested_at, j.idempotency_key, j.dedupe_scope, item.item_result, j.progress, j.created_at
), kept AS (
INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery,
  lease_token, lease_owner, due_at, claimed_at, started_at,
  payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
  cancel_requested_at, idempotency_key, dedupe_scope, result, progress, created_at)
SELECT id, type, queue, tenant_id, priority, 'succeeded', 'done', :now, TRUE, attempts + 1, deliveries,
  decode(lease_token, 'hex'), lease_owner, due_at, claimed_at, started_at,
  payload, meta, run_at, expires_at, NULLIF(timeout_nanos, 0), max_attempts, NULLIF(attempts, 0), NULLIF(forgiven, 0),
  NULLIF(last_error, ''), failed_at,
  cancel_requested_at, idempotency_key, dedupe_scope, item_result, progress, created_at
FROM gone
)
SELECT NULL, NULL WHERE (SELECT count(*) FROM gone) = cardinality(CAST(:ids AS text[]))
UNION ALL
SELECT id, lease_token FROM gone
WHERE (SELECT count(*) FROM gone) <> cardinality(CAST(:ids AS text[]));
