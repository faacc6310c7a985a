-- A fact that was here before, back in its place of the feed: whoever has read that far does not get it again.
INSERT INTO th_history (
  xid, seq, job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
  lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
  max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
  result, progress, created_at)
OVERRIDING SYSTEM VALUE
VALUES (
  CAST(CAST(:xid AS text) AS xid8), :seq, :job_id, :type, :queue, :tenant_id, :priority, :outcome, :status, :at, :final,
  :attempt_no, :delivery, :error, :code, decode(:lease_token, 'hex'), :lease_owner, :due_at, :claimed_at, :started_at,
  :payload, :meta, :run_at, :expires_at, NULLIF(CAST(:timeout_nanos AS bigint), 0), :max_attempts,
  NULLIF(CAST(:attempts AS int), 0), NULLIF(CAST(:forgiven AS int), 0), :last_error, :failed_at, :cancel_requested_at,
  :idempotency_key, :dedupe_scope, :result, :progress, :created_at);
