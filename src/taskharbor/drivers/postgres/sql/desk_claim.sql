-- `claim` at a desk: also returns what the rows held before, so that leases can be undone.
-- With the lines for a fair queue it needs no desk: it yields nothing while a due job has no tag, for these come first,
-- and remembers how far the line has come.
-- With those for one limit on what runs of each key or tenant it needs nothing but the lock of desks: it notes what it
-- leases, and yields nothing if one of them would have to wait, if another limit holds, or if a bench is to be looked at.
WITH RECURSIVE level AS (
  (SELECT priority, due_at, id FROM th_jobs
   WHERE status = 'ready' AND queue = :queue
     AND NOT EXISTS (SELECT FROM th_queues q WHERE q.name IN (:queue, chr(1) || 'moving') AND q.paused)
     AND NOT (CAST(:sweep_first AS boolean) AND (
       (SELECT id FROM th_jobs WHERE status = 'inflight' AND queue = :queue AND lease_expires_at <= :now
        ORDER BY lease_expires_at LIMIT 1) IS NOT NULL
       OR (SELECT id FROM th_jobs WHERE status = 'ready' AND queue = :queue AND expires_at <= :now
           ORDER BY expires_at LIMIT 1) IS NOT NULL))
     -- ?counted  AND ARRAY(SELECT ROW(l.scope, l.name, l.per, l.concurrency, l.rate IS NULL) FROM th_limits l
     -- ?counted      WHERE l.scope IN ('type', 'tenant') OR (l.scope = 'queue' AND l.name = :queue))
     -- ?counted    = ARRAY[ROW(CAST(:scope AS text) COLLATE "C", CAST(:name AS text) COLLATE "C",
     -- ?counted                CAST(:per AS text) COLLATE "C", CAST(:concurrency AS int), TRUE)]
     -- ?counted  AND (SELECT b.bucket FROM th_buckets b
     -- ?counted       WHERE b.wake_at <= :now AND (b.scope <> 'queue' OR b.name = :queue)
     -- ?counted       ORDER BY b.wake_at LIMIT 1) IS NULL
   ORDER BY priority DESC, due_at, id LIMIT 1)
  UNION ALL
  SELECT next.priority, next.due_at, next.id FROM level CROSS JOIN LATERAL (
    SELECT j.priority, j.due_at, j.id FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = :queue AND j.priority < level.priority
    ORDER BY j.priority DESC, j.due_at, j.id LIMIT 1
  ) next
), picked AS MATERIALIZED (
  SELECT due.*, level.priority,
         encode(substring(sha256(convert_to(:secret || due.id, 'UTF8')) FOR 16), 'hex') AS token
  FROM level CROSS JOIN LATERAL (
    SELECT j.ctid AS place, j.id, j.due_at AS position, j.progress, j.updated_at
    -- ?counted  , j.type, j.tenant_id, j.meta
    FROM th_jobs j
    WHERE j.status = 'ready' AND j.queue = :queue AND j.priority = level.priority
      AND (j.due_at, j.id) >= (level.due_at, level.id) AND j.due_at <= :now
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
-- ?counted  , part AS MATERIALIZED (
-- ?counted    SELECT id, token, CASE CAST(:per AS text) WHEN 'tenant' THEN tenant_id
-- ?counted                      ELSE CAST(meta AS json) ->> 'limit_key' END COLLATE "C" AS value
-- ?counted    FROM picked
-- ?counted    WHERE CASE CAST(:scope AS text) WHEN 'queue' THEN TRUE WHEN 'type' THEN type = :name
-- ?counted          ELSE tenant_id = :name END
-- ?counted  ), share AS MATERIALIZED (
-- ?counted    SELECT id, token, :stem || '"' || value || '"]' AS bucket FROM part WHERE value IS NOT NULL
-- ?counted  ), running AS MATERIALIZED (
-- ?counted    -- In order, which takes a scan that marks the entries of notes that are gone; buckets that are busy have many.
-- ?counted    SELECT found.* FROM (SELECT DISTINCT bucket FROM share) AS asked CROSS JOIN LATERAL (
-- ?counted      SELECT r.bucket, r.job_id FROM th_running r WHERE r.bucket = asked.bucket ORDER BY r.job_id
-- ?counted      LIMIT :concurrency
-- ?counted    ) AS found
-- ?counted  ), fits AS MATERIALIZED (
-- ?counted    SELECT
-- ?counted      -- Only what is plain text is named by `Limit.bucket` as it is here.
-- ?counted      (SELECT string_agg(value, '') ~ '^[] !#-[^-~]*$' FROM part) IS NOT FALSE
-- ?counted      AND (SELECT max(length(bucket)) <= :longest FROM share) IS NOT FALSE
-- ?counted      AND NOT EXISTS (SELECT FROM running WHERE (job_id IN (SELECT id FROM share)) IS TRUE)
-- ?counted      AND NOT EXISTS (SELECT FROM (SELECT bucket FROM share UNION ALL SELECT bucket FROM running) AS each
-- ?counted                      GROUP BY bucket HAVING count(*) > :concurrency) AS yes
-- ?counted  ), moved AS (
UPDATE th_jobs j
SET status = 'inflight', lease_token = picked.token, lease_owner = :owner, lease_expires_at = :until,
    deliveries = j.deliveries + 1, claimed_at = :now, started_at = NULL, progress = NULL, updated_at = :now,
    due_at = COALESCE(j.due_was, j.due_at), due_was = NULL
FROM picked WHERE j.ctid = picked.place
-- ?counted  AND (SELECT yes FROM fits)
RETURNING j.id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, j.run_at, j.due_at, j.expires_at,
          j.timeout_nanos, j.max_attempts, j.attempts, j.deliveries, j.forgiven, j.last_error, j.failed_at,
          j.lease_token, j.idempotency_key, j.dedupe_scope, j.created_at,
          picked.position, picked.progress, picked.updated_at
-- ?counted  ), noted AS (
-- ?counted    -- Only what was leased: a job that somebody changed since this statement began is found, but not changed.
-- ?counted    INSERT INTO th_running (bucket, job_id, token, until)
-- ?counted    SELECT bucket, id, token, :until FROM share WHERE (id IN (SELECT id FROM moved)) IS TRUE
-- ?counted  )
-- ?counted  SELECT * FROM moved
;
