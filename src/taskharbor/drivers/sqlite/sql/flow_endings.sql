-- The steps of these jobs that may still move, and where their jobs stand.
SELECT s.workflow_id, s.number, s.job_id, s.state, s.waiting,
       COALESCE((SELECT j.status FROM th_jobs j WHERE j.id = s.job_id),
                (SELECT h.status FROM th_history h WHERE h.job_id = s.job_id AND h.final = 1
                 ORDER BY h.seq DESC LIMIT 1))
FROM json_each(:ids) AS given CROSS JOIN th_steps AS s INDEXED BY th_steps_job
WHERE s.job_id = given.value AND s.state IN ('waiting', 'held', 'open', 'failed');
