-- A job that has not begun becomes what another one is. If it was on a bench it leaves it: it is another job now.
UPDATE th_jobs
SET type = :type, queue = :queue, payload = :payload, meta = :meta, priority = :priority, run_at = :run_at,
    due_at = :due_at, due_was = NULL, expires_at = :expires_at, timeout_nanos = :timeout_nanos,
    max_attempts = :max_attempts, progress = NULL, updated_at = :created_at
WHERE id = :holder AND status = 'ready'
