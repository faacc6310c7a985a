-- `claim` at a desk: also returns what the rows held before, so that leases can be undone.
-- With the lines for a fair queue it needs no desk: it yields nothing while a due job has no tag, for these come first,
-- and remembers how far the line has come.
WITH RECURSIVE level AS (
  (SELECT priority FROM th_jobs
   WHERE status = 'ready' AND queue = :queue
     AND NOT EXISTS (SELECT FROM th_queues q WHERE q.name IN (:queue, chr(1) || 'moving') AND q.paused)
     AND NOT (CAST(:sweep_first AS boolean) AND (
       (SELECT id FROM th_jobs WHERE status = 'inflight' AND queue = :queue AND lease_expires_at <= :now
        ORDER BY lease_expires_at LIMIT 1) IS NOT NULL
       OR (SELECT id FROM th_jobs WHERE status = 'ready' AND queue = :queue AND expires_at <= :now
           ORDER BY expires_at LIMIT 1) IS NOT NULL))
   ORDER BY priority DESC LIMIT 1)
  UNION ALL
  SELECT (SELECT j.priority FROM th_jobs j
          WHERE j.status = 'ready' AND j.queue = :queue AND j.priority < level.priority
          ORDER BY j.priority DESC LIMIT 1)
  FROM level WHERE level.priority IS NOT NULL
), picked AS MATERIALIZED (
  SELECT due.place, due.position, due.progress, due.updated_at, level.priority FROM level CROSS JOIN LATERAL (
    SELECT j.ctid AS place, j.due_at AS position, j.progress, j.updated_at FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = :queue AND j.priority = level.priority AND j.due_at <= :now
      AND (j.expires_at IS NULL OR j.expires_at > :now)
      AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
      -- ?tenant  AND j.tenant_id = :tenant
    ORDER BY j.due_at, j.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
  ) due
  -- ?fair  WHERE (SELECT newcomer.priority FROM level CROSS JOIN LATERAL (
  -- ?fair    SELECT j.priority FROM th_jobs j
  -- ?fair    WHERE j.status = 'ready' AND j.queue = :queue AND j.priority = level.priority
  -- ?fair      AND j.due_at >= '2000-01-01Z' AND j.due_at <= :now
  -- ?fair    ORDER BY j.due_at LIMIT 1
  -- ?fair  ) newcomer LIMIT 1) IS NULL
  LIMIT :limit
)
-- ?fair  , advanced AS (
-- ?fair    INSERT INTO th_fair AS f (queue, priority, tenant_id, tag)
-- ?fair    SELECT :queue, priority, chr(1), CAST(extract(epoch FROM max(position)) * 1000000 AS bigint) FROM picked
-- ?fair    WHERE CAST(:tenant AS text) IS NULL GROUP BY priority ORDER BY priority
-- ?fair    ON CONFLICT (queue, priority, tenant_id) DO UPDATE SET tag = GREATEST(f.tag, EXCLUDED.tag)
-- ?fair  )
UPDATE th_jobs j
SET status = 'inflight', lease_token = left(encode(sha256(convert_to(:secret || j.id, 'UTF8')), 'hex'), 32),
    lease_owner = :owner, lease_expires_at = :until, deliveries = j.deliveries + 1, claimed_at = :now, started_at = NULL,
    progress = NULL, updated_at = :now, due_at = COALESCE(j.due_was, j.due_at), due_was = NULL
FROM picked WHERE j.ctid = picked.place
RETURNING j.id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, j.run_at, j.due_at, j.expires_at,
          j.timeout_nanos, j.max_attempts, j.attempts, j.deliveries, j.forgiven, j.last_error, j.failed_at,
          j.lease_token, j.idempotency_key, j.dedupe_scope, j.created_at,
          picked.position, picked.progress, picked.updated_at;
