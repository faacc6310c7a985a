-- `publish_jobs`, when some of the keys belong to other jobs, or some of the jobs are there already. Those are found before
-- the first row is added, live and finished ones by the same snapshot: a job that is settled meanwhile is one of them,
-- although it collides with nothing any more.
WITH live AS MATERIALIZED (
  SELECT s.id FROM th_staged s JOIN th_jobs j ON j.id = s.id
  WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL
    -- ?range  AND s.id >= :low AND s.id < :high
)
INSERT INTO th_jobs (id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
                     max_attempts, created_at, updated_at, idempotency_key, dedupe_scope)
SELECT DISTINCT ON (s.id) s.id, COALESCE(s.type, :type), COALESCE(s.queue, :queue), COALESCE(s.tenant_id, :tenant_id),
       s.payload,
       COALESCE(s.meta, :meta), COALESCE(s.priority, :priority), COALESCE(s.run_at, CAST(:run_at AS timestamptz)),
       GREATEST(COALESCE(s.run_at, CAST(:run_at AS timestamptz), CAST(:now AS timestamptz)), '2000-01-01Z'),
       COALESCE(s.expires_at, CAST(:expires_at AS timestamptz)), COALESCE(s.timeout_nanos, :timeout_nanos),
       COALESCE(s.max_attempts, :max_attempts), CAST(:now AS timestamptz), CAST(:now AS timestamptz),
       s.idempotency_key, CASE WHEN s.idempotency_key IS NOT NULL THEN COALESCE(s.dedupe_scope, :dedupe_scope) END
FROM th_staged s
LEFT JOIN th_keys k ON k.dedupe_scope = COALESCE(s.dedupe_scope, :dedupe_scope) AND k.idempotency_key = s.idempotency_key
WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL
  AND COALESCE(s.expires_at, CAST(:expires_at AS timestamptz), 'infinity') > :now
  AND (s.idempotency_key IS NULL OR k.job_id = s.id)
  AND NOT EXISTS (SELECT FROM th_history h WHERE h.job_id = s.id AND h.final)
  AND s.id NOT IN (SELECT id FROM live)
  -- ?range  AND s.id >= :low AND s.id < :high
ORDER BY s.id
ON CONFLICT (id) DO NOTHING;
