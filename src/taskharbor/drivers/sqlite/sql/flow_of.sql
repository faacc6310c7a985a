SELECT DISTINCT s.workflow_id
FROM json_each(:ids) AS given CROSS JOIN th_steps AS s INDEXED BY th_steps_job
WHERE s.job_id = given.value AND s.state IN ('waiting', 'held', 'open', 'failed');
