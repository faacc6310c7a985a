INSERT INTO th_jobs
  (id, payload, type, queue, tenant_id, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
   created_at, updated_at, idempotency_key, dedupe_scope)
VALUES
  (:id, :payload, :type, :queue, :tenant_id, :meta, :priority, :run_at, :due_at, :expires_at, :timeout_nanos,
   :max_attempts, :created_at, :updated_at, :idempotency_key, :dedupe_scope)
