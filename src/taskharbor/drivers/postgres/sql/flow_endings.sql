-- The steps of these jobs that may still move, and where their jobs stand.
SELECT s.workflow_id, s.number, s.job_id, s.state, s.waiting,
       COALESCE((SELECT j.status FROM th_jobs j WHERE j.id = s.job_id),
                (SELECT h.status FROM th_history h WHERE h.job_id = s.job_id AND h.final
                 ORDER BY h.xid DESC, h.seq DESC LIMIT 1))
FROM th_steps s
WHERE s.job_id = ANY (CAST(:ids AS text[])) AND s.state IN ('waiting', 'held', 'open', 'failed');
