SELECT workflow_id, number, job_id FROM th_steps
 WHERE state = 'held' AND workflow_id IN (SELECT value FROM json_each(:ids))
 ORDER BY workflow_id, number LIMIT :most;
