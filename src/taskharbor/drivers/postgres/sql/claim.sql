-- Lease the first jobs of one queue. Goes down the priorities one by one, so that jobs scheduled for later, of
-- whatever priority, are never walked over. The inner queries come out in order; LIMIT stops them early. Each begins
-- at the first job of its priority: to find that walks over what has been claimed and still stands in the index, and
-- once is enough.
-- The ordered look-ups in it keep to their indexes; EXISTS would let the planner hope for luck and read the table.
-- With :sweep_first the claim yields nothing while a lease has lapsed or a job is late: the caller then sweeps.
WITH RECURSIVE level AS (
  (SELECT priority, due_at, id FROM th_jobs
   WHERE status = 'ready' AND queue = :queue
     AND NOT EXISTS (SELECT FROM th_queues q WHERE q.name IN (:queue, chr(1) || 'moving') AND q.paused)
     AND NOT (CAST(:sweep_first AS boolean) AND (
       (SELECT id FROM th_jobs WHERE status = 'inflight' AND queue = :queue AND lease_expires_at <= :now
        ORDER BY lease_expires_at LIMIT 1) IS NOT NULL
       OR (SELECT id FROM th_jobs WHERE status = 'ready' AND queue = :queue AND expires_at <= :now
           ORDER BY expires_at LIMIT 1) IS NOT NULL))
   ORDER BY priority DESC, due_at, id LIMIT 1)
  UNION ALL
  SELECT next.priority, next.due_at, next.id FROM level CROSS JOIN LATERAL (
    SELECT j.priority, j.due_at, j.id FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = :queue AND j.priority < level.priority
    ORDER BY j.priority DESC, j.due_at, j.id LIMIT 1
  ) next
), picked AS MATERIALIZED (
  SELECT due.place FROM level CROSS JOIN LATERAL (
    SELECT j.ctid AS place FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = :queue AND j.priority = level.priority
      AND (j.due_at, j.id) >= (level.due_at, level.id) AND j.due_at <= :now
      AND (j.expires_at IS NULL OR j.expires_at > :now)
      AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
      -- ?tenant  AND j.tenant_id = :tenant
    ORDER BY j.due_at, j.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
  ) due
  LIMIT :limit
)
UPDATE th_jobs j
SET status = 'inflight', lease_token = encode(substring(sha256(convert_to(:secret || j.id, 'UTF8')) FOR 16), 'hex'),
    lease_owner = :owner, lease_expires_at = :until, deliveries = j.deliveries + 1, claimed_at = :now, started_at = NULL,
    progress = NULL, updated_at = :now, due_at = COALESCE(j.due_was, j.due_at), due_was = NULL
WHERE j.ctid = ANY (ARRAY(SELECT place FROM picked))
RETURNING j.id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, j.run_at, j.due_at, j.expires_at,
          j.timeout_nanos, j.max_attempts, j.attempts, j.deliveries, j.forgiven, j.last_error, j.failed_at,
          j.lease_token, j.idempotency_key, j.dedupe_scope, j.created_at, j.ctid;
