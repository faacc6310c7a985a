INSERT INTO th_staged
  (run, attempt, id, type, queue, tenant_id, priority, run_at, expires_at, timeout_nanos, max_attempts, meta,
   idempotency_key, dedupe_scope, payload, reject_reason)
VALUES
  (:run, :attempt, :id, :type, :queue, :tenant_id, :priority, :run_at, :expires_at, :timeout_nanos, :max_attempts, :meta,
   :idempotency_key, :dedupe_scope, :payload, :reject_reason)
