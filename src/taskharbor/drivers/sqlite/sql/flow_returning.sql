-- A failed step whose job has come back, and that nobody has counted as such yet.
SELECT 1 FROM th_steps s JOIN th_jobs j ON j.id = s.job_id AND j.status IN ('ready', 'inflight')
WHERE s.workflow_id = :workflow_id AND s.state = 'failed' AND s.number >= 0
LIMIT 1;
