-- A fact that was here before, back in its place of the feed: whoever has read that far does not get it again.
INSERT INTO th_history (
  seq, job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
  lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
  max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
  result, progress, created_at
) VALUES (
  :seq, :job_id, :type, :queue, :tenant_id, :priority, :outcome, :status, :at, :final, :attempt_no, :delivery, :error, :code,
  :lease_token, :lease_owner, :due_at, :claimed_at, :started_at, :payload, :meta, :run_at, :expires_at, :timeout_nanos,
  :max_attempts, :attempts, :forgiven, :last_error, :failed_at, :cancel_requested_at, :idempotency_key, :dedupe_scope,
  :result, :progress, :created_at
);
