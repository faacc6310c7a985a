SELECT DISTINCT s.workflow_id
FROM th_steps s
WHERE s.job_id = ANY (CAST(:ids AS text[])) AND s.state IN ('waiting', 'held', 'open', 'failed');
