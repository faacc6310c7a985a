SELECT number, job_id FROM th_steps WHERE workflow_id = :workflow_id AND state = 'held' ORDER BY number LIMIT :most
