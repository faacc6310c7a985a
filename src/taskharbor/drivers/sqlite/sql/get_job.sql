SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, coalesce(due_was, due_at), expires_at, timeout_nanos, max_attempts,
       attempts, deliveries, forgiven, last_error, failed_at, status, lease_token, lease_owner, lease_expires_at,
       cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key, dedupe_scope, progress, created_at,
       updated_at, claimed_at, started_at
  FROM th_jobs
 WHERE id = :id;
