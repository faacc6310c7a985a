-- Ready jobs past their time will never start: they leave for history.
WITH late AS MATERIALIZED (
  SELECT id FROM th_jobs
  WHERE status = 'ready' AND queue = ANY (CAST(:queues AS text[])) AND expires_at <= :now
  ORDER BY expires_at
  LIMIT :sweep
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM th_jobs j USING late WHERE j.id = late.id RETURNING j.*
), unbenched AS (
  DELETE FROM th_bench WHERE job_id = ANY (ARRAY(SELECT id FROM gone WHERE due_was IS NOT NULL))
)
INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, delivery, due_at,
  payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
  idempotency_key, dedupe_scope, progress, created_at)
SELECT id, type, queue, tenant_id, priority, 'expired', 'expired', :now, TRUE, deliveries, COALESCE(due_was, due_at),
  payload, meta, run_at, expires_at, NULLIF(timeout_nanos, 0), max_attempts, NULLIF(attempts, 0), NULLIF(forgiven, 0),
  NULLIF(last_error, ''), failed_at,
  idempotency_key, dedupe_scope, progress, created_at
FROM gone
RETURNING job_id;
