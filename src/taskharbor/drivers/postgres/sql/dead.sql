-- Jobs that failed for good go to the DLQ, which is a state of the live table, so that a redrive is one update.
WITH item AS (
  SELECT * FROM unnest(
    CAST(:ids AS text[]), CAST(:tokens AS text[]), CAST(:starts AS timestamptz[]), CAST(:reasons AS text[]),
    CAST(:codes AS text[])
  ) AS item (item_id, item_token, item_start, reason, code)
), held AS MATERIALIZED (
  SELECT j.*, item.*, COALESCE(item.item_start, j.started_at, j.claimed_at) AS start
  FROM item JOIN th_jobs j ON j.id = item.item_id
  WHERE j.lease_token = item.item_token AND j.lease_expires_at > :now
    AND j.cancel_requested_at IS NULL
  FOR UPDATE OF j
), dead AS (
  UPDATE th_jobs j
  SET status = 'dlq', lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL, updated_at = :now,
      started_at = h.start, attempts = j.attempts + 1, last_error = h.reason, failed_at = :now,
      dlq_reason = h.reason, dlq_code = h.code, dlq_failed_at = :now
  FROM held h WHERE j.id = h.id
), noted AS (
  INSERT INTO th_history (
    job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
    lease_token, lease_owner, due_at, claimed_at, started_at,
    payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
    idempotency_key, dedupe_scope, progress, created_at)
  SELECT id, type, queue, tenant_id, priority, 'dead', 'dlq', :now, FALSE, attempts + 1, deliveries, reason, code,
    decode(lease_token, 'hex'), lease_owner, due_at, claimed_at, start,
    payload, meta, run_at, expires_at, NULLIF(timeout_nanos, 0), max_attempts, attempts + 1, NULLIF(forgiven, 0), reason, :now,
    idempotency_key, dedupe_scope, progress, created_at
  FROM held
)
SELECT id, lease_token FROM held;
