SELECT s.number, s.job_id FROM th_steps s JOIN th_jobs j ON j.id = s.job_id AND j.status = 'ready'
WHERE s.workflow_id = :workflow_id AND s.state = 'open' AND s.number >= 0
ORDER BY s.number LIMIT :most
FOR UPDATE
