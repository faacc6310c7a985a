INSERT INTO th_jobs (
  id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
  created_at, updated_at, idempotency_key, dedupe_scope
) VALUES (
  :id, :type, :queue, :tenant_id, :payload, :meta, :priority, :run_at, :due_at, :expires_at, :timeout_nanos,
  :max_attempts, :created_at, :created_at, :idempotency_key, :dedupe_scope
);
