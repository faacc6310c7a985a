-- The newest rows of the feed in outline.
SELECT seq, job_id, type, queue, tenant_id, outcome, status, at, due_at, started_at, attempt_no, lease_owner, code
FROM th_history
ORDER BY seq DESC LIMIT :limit
