INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
  lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
  max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
  result, progress, created_at)
VALUES (
  :job_id, :type, :queue, :tenant_id, :priority, :outcome, :status, :at, :final, :attempt_no, :delivery, :error,
  :code, decode(:lease_token, 'hex'), :lease_owner, :due_at, :claimed_at, :started_at, :payload, :meta, :run_at, :expires_at,
  NULLIF(CAST(:timeout_nanos AS bigint), 0), :max_attempts, NULLIF(CAST(:attempts AS int), 0),
  NULLIF(CAST(:forgiven AS int), 0), :last_error, :failed_at, :cancel_requested_at,
  :idempotency_key, :dedupe_scope, :result, :progress, :created_at);
