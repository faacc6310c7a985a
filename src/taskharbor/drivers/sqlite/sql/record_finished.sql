-- The finished jobs and their last attempts in one row each; the caller deletes the live jobs next. CROSS JOIN is an
-- order to SQLite: go through the few that end, and look each up among the many. CASE keeps it from building a filter
-- over all of th_jobs first, which it does for conditions on that table alone, once somebody has run ANALYZE.
INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
  lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
  max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
  result, progress, created_at
)
SELECT job.id, type, queue, tenant_id, priority, :outcome, :status, :now, 1, attempts + 1, deliveries, ending.error,
       NULL, lease_token, lease_owner, due_at, claimed_at, coalesce(ending.started_at, job.started_at, claimed_at),
       payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
       cancel_requested_at, idempotency_key, dedupe_scope, ending.result, progress, created_at
  FROM temp.th_ending AS ending
 CROSS JOIN th_jobs AS job
 WHERE job.id = ending.id
   AND CASE WHEN lease_token = ending.token THEN status = 'inflight' AND lease_expires_at > :now END;
