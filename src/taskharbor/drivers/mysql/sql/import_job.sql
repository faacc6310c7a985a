-- A job from another store or another system, as it stands.
INSERT INTO th_jobs (
  id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, created_at,
  updated_at, attempts, max_attempts, deliveries, forgiven, last_error, failed_at, status, lease_token,
  lease_owner, lease_expires_at, claimed_at, started_at, cancel_requested_at, progress, dlq_reason, dlq_code,
  dlq_failed_at, idempotency_key, dedupe_scope, due_was
) VALUES (
  :id, :type, :queue, :tenant_id, :payload, :meta, :priority, :run_at, :due_at, :expires_at, :timeout_nanos,
  :created_at, :updated_at, :attempts, :max_attempts, :deliveries, :forgiven, :last_error, :failed_at,
  :status, :lease_token, :lease_owner, :lease_expires_at, :claimed_at, :started_at, :cancel_requested_at,
  :progress, :dlq_reason, :dlq_code, :dlq_failed_at, :idempotency_key, :dedupe_scope, :due_was
)
