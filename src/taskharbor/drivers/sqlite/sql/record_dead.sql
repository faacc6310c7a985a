-- The attempt that sent a job to the DLQ, with the whole job for readers of the feed; the job itself stays live.
INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
  lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
  max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
  result, progress, created_at
)
SELECT id, type, queue, tenant_id, priority, 'dead', 'dlq', :now, 0, attempts + 1, deliveries, :reason, :code,
       lease_token, lease_owner, due_at, claimed_at, coalesce(:started_at, started_at, claimed_at), payload, meta,
       run_at, expires_at, timeout_nanos, max_attempts, attempts + 1, forgiven, :reason, :now,
       cancel_requested_at, idempotency_key, dedupe_scope, NULL, progress, created_at
  FROM th_jobs
 WHERE id = :id AND lease_token = :token AND status = 'inflight' AND lease_expires_at > :now
   AND cancel_requested_at IS NULL;
