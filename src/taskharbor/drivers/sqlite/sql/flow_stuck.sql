SELECT w.id FROM th_workflows w
WHERE (w.state = 'running' AND EXISTS (SELECT 1 FROM th_steps s WHERE s.workflow_id = w.id AND s.state = 'held'))
   OR (w.state = 'failed' AND w.policy <> 'continue'
       AND EXISTS (SELECT 1 FROM th_steps s JOIN th_jobs j ON j.id = s.job_id AND j.status = 'ready'
                   WHERE s.workflow_id = w.id AND s.state = 'open' AND s.number >= 0))
   OR (w.state = 'failed' AND w.policy = 'compensate'
       AND (w.compensation IS NOT NULL
            OR EXISTS (SELECT 1 FROM th_steps s WHERE s.workflow_id = w.id AND s.number = -1 AND s.state = 'waiting'))
       AND NOT EXISTS (SELECT 1 FROM th_steps s WHERE s.workflow_id = w.id AND s.state = 'open' AND s.number >= 0))
LIMIT :most;
