-- Every staged job that holds its key since this very load. Rows that are alike share an id, and are one job.
INSERT INTO th_jobs
  (id, payload, type, queue, tenant_id, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
   created_at, updated_at, idempotency_key, dedupe_scope)
SELECT s.id, s.payload, COALESCE(s.type, :type), COALESCE(s.queue, :queue), COALESCE(s.tenant_id, :tenant_id),
       COALESCE(s.meta, :meta), COALESCE(s.priority, :priority), COALESCE(s.run_at, :run_at),
       GREATEST(COALESCE(s.run_at, :run_at, :now), TIMESTAMP '2000-01-01 00:00:00'),
       COALESCE(s.expires_at, :expires_at), COALESCE(s.timeout_nanos, :timeout_nanos),
       COALESCE(s.max_attempts, :max_attempts), :now, :now, COALESCE(s.idempotency_key, s.id), COALESCE(s.dedupe_scope, :dedupe_scope)
FROM th_staged AS s
JOIN th_keys AS k ON k.dedupe_scope = COALESCE(s.dedupe_scope, :dedupe_scope) AND k.idempotency_key = COALESCE(s.idempotency_key, s.id)
WHERE s.run = :run AND s.attempt IN :attempts AND s.reject_reason IS NULL
  AND k.taken_by = :taken_by AND k.job_id = s.id AND COALESCE(s.expires_at, :expires_at, '9999-12-31') > :now
ON DUPLICATE KEY UPDATE id = th_jobs.id
