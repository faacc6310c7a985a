SELECT number, job_id FROM th_steps
WHERE workflow_id = :workflow_id AND state = 'failed' AND number > :after
ORDER BY number LIMIT :most
