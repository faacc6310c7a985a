-- Steps that are still to run, and never will: their jobs are gone, whatever has become of them.
SELECT s.number, (SELECT h.status FROM th_history h WHERE h.job_id = s.job_id AND h.final = 1
                 ORDER BY h.seq DESC LIMIT 1)
FROM th_steps s LEFT JOIN th_jobs j ON j.id = s.job_id
WHERE s.workflow_id = :workflow_id AND s.number >= 0 AND s.state IN ('waiting', 'held') AND j.id IS NULL
ORDER BY s.number LIMIT :most;
