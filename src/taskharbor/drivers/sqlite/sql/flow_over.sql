-- Not one that has failed and can be sent on, as long as a dead job of it is there.
SELECT w.id FROM th_workflows w
WHERE w.ended_at < :before
  AND NOT (w.state = 'failed' AND EXISTS (
    SELECT 1 FROM th_steps s JOIN th_jobs j ON j.id = s.job_id AND j.status = 'dlq'
    WHERE s.workflow_id = w.id AND s.state = 'failed'))
ORDER BY w.ended_at LIMIT :most;
