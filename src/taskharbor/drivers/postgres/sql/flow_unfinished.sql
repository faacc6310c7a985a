SELECT number, job_id FROM th_steps
WHERE workflow_id = :workflow_id AND state NOT IN ('done', 'failed', 'cancelled')
ORDER BY number LIMIT :most;
