-- history.sql in outline.
SELECT seq, job_id, type, queue, tenant_id, outcome, status, at, due_at, started_at, attempt_no, lease_owner, code
FROM th_history
WHERE seq > :after
ORDER BY seq LIMIT :limit
