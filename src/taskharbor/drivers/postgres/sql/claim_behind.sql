-- `claim` in one priority, from a known point on. Used while a long transaction keeps the index from being cleaned:
-- everything claimed since it began still stands at the head of the index, and walking over it is what costs.
WITH picked AS MATERIALIZED (
  SELECT j.ctid AS place FROM th_jobs j
  WHERE j.status = 'ready' AND j.queue = :queue AND j.priority = :floor_priority
    AND (j.due_at, j.id) > (:floor_due_at, :floor_id) AND j.due_at <= :now
    AND (j.expires_at IS NULL OR j.expires_at > :now)
    AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
    -- ?tenant  AND j.tenant_id = :tenant
    AND NOT EXISTS (SELECT FROM th_queues q WHERE q.name IN (:queue, chr(1) || 'moving') AND q.paused)
  ORDER BY j.due_at, j.id
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
UPDATE th_jobs j
SET status = 'inflight', lease_token = encode(substring(sha256(convert_to(:secret || j.id, 'UTF8')) FOR 16), 'hex'),
    lease_owner = :owner, lease_expires_at = :until, deliveries = j.deliveries + 1, claimed_at = :now, started_at = NULL,
    progress = NULL, updated_at = :now, due_at = COALESCE(j.due_was, j.due_at), due_was = NULL
WHERE j.ctid = ANY (ARRAY(SELECT place FROM picked))
RETURNING j.id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, j.run_at, j.due_at, j.expires_at,
          j.timeout_nanos, j.max_attempts, j.attempts, j.deliveries, j.forgiven, j.last_error, j.failed_at,
          j.lease_token, j.idempotency_key, j.dedupe_scope, j.created_at, j.ctid;
