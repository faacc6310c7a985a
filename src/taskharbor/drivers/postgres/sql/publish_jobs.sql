-- Every staged job that is not late, when none of them is there already. One without a key has an id that stands for
-- its content, so rows that are alike are one job.
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
WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL
  AND COALESCE(s.expires_at, CAST(:expires_at AS timestamptz), 'infinity') > :now
  -- ?range  AND s.id >= :low AND s.id < :high
ORDER BY s.id;
