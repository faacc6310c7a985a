-- Lease the first jobs over several queues. First looks, without a lock, how many of the first :limit belong to each
-- queue; then claims that many from each as `claim` does, from the same first job on. So no more rows are locked than
-- are leased.
WITH RECURSIVE stale AS MATERIALIZED (
  SELECT bool_or(
    (SELECT j.id FROM th_jobs j WHERE j.status = 'inflight' AND j.queue = u.name AND j.lease_expires_at <= :now
     ORDER BY j.lease_expires_at LIMIT 1) IS NOT NULL
    OR (SELECT j.id FROM th_jobs j WHERE j.status = 'ready' AND j.queue = u.name AND j.expires_at <= :now
        ORDER BY j.expires_at LIMIT 1) IS NOT NULL) AS found
  FROM unnest(CAST(:queues AS text[])) AS u (name) WHERE CAST(:sweep_first AS boolean)
), open_queue AS MATERIALIZED (
  SELECT u.name FROM unnest(CAST(:queues AS text[])) AS u (name)
  WHERE NOT EXISTS (SELECT FROM th_queues q WHERE q.name IN (u.name, chr(1) || 'moving') AND q.paused)
    AND NOT COALESCE((SELECT found FROM stale), FALSE)
), level AS (
  SELECT o.name, head.priority, head.due_at, head.id FROM open_queue o CROSS JOIN LATERAL (
    SELECT j.priority, j.due_at, j.id FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = o.name
    ORDER BY j.priority DESC, j.due_at, j.id LIMIT 1
  ) head
  UNION ALL
  SELECT level.name, next.priority, next.due_at, next.id FROM level CROSS JOIN LATERAL (
    SELECT j.priority, j.due_at, j.id FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = level.name AND j.priority < level.priority
    ORDER BY j.priority DESC, j.due_at, j.id LIMIT 1
  ) next
), share AS MATERIALIZED (
  SELECT first.name, first.priority, first.head_due_at, first.head_id, count(*) AS wanted FROM (
    SELECT level.name, level.priority, level.due_at AS head_due_at, level.id AS head_id, due.due_at, due.id
    FROM level CROSS JOIN LATERAL (
      SELECT j.due_at, j.id FROM th_jobs j
      WHERE j.status = 'ready' AND j.queue = level.name AND j.priority = level.priority
        AND (j.due_at, j.id) >= (level.due_at, level.id) AND j.due_at <= :now
        AND (j.expires_at IS NULL OR j.expires_at > :now)
        AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
        -- ?tenant  AND j.tenant_id = :tenant
      ORDER BY j.due_at, j.id
      LIMIT :limit
    ) due
    ORDER BY level.priority DESC, due.due_at, due.id
    LIMIT :limit
  ) first
  GROUP BY first.name, first.priority, first.head_due_at, first.head_id
), picked AS MATERIALIZED (
  SELECT due.place FROM share CROSS JOIN LATERAL (
    SELECT j.ctid AS place FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = share.name AND j.priority = share.priority
      AND (j.due_at, j.id) >= (share.head_due_at, share.head_id) AND j.due_at <= :now
      AND (j.expires_at IS NULL OR j.expires_at > :now)
      AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
      -- ?tenant  AND j.tenant_id = :tenant
    ORDER BY j.due_at, j.id
    LIMIT share.wanted
    FOR UPDATE SKIP LOCKED
  ) due
)
UPDATE th_jobs j
SET status = 'inflight', lease_token = encode(substring(sha256(convert_to(:secret || j.id, 'UTF8')) FOR 16), 'hex'),
    lease_owner = :owner, lease_expires_at = :until, deliveries = j.deliveries + 1, claimed_at = :now, started_at = NULL,
    progress = NULL, updated_at = :now, due_at = COALESCE(j.due_was, j.due_at), due_was = NULL
WHERE j.ctid = ANY (ARRAY(SELECT place FROM picked))
RETURNING j.id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, j.run_at, j.due_at, j.expires_at,
          j.timeout_nanos, j.max_attempts, j.attempts, j.deliveries, j.forgiven, j.last_error, j.failed_at,
          j.lease_token, j.idempotency_key, j.dedupe_scope, j.created_at, j.ctid;
