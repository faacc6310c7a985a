-- One statement, so that no job is counted twice or not at all while it moves from one table to the other. due_was is
-- when a job is truly due while a limit or a fair queue keeps something else in due_at.
SELECT tenant_id, queue, status, COUNT(*),
       CAST(SUM(status = 'ready' AND COALESCE(due_was, due_at) > :now) AS SIGNED),
       MIN(IF(status = 'ready' AND COALESCE(due_was, due_at) <= :now, COALESCE(due_was, due_at), NULL))
FROM th_jobs
GROUP BY tenant_id, queue, status
UNION ALL
SELECT tenant_id, queue, status, COUNT(*), 0, NULL
FROM th_history
WHERE final = 1
GROUP BY tenant_id, queue, status
