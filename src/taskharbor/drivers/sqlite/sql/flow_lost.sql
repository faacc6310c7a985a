-- Open steps whose jobs have ended, and failed ones whose jobs have come back or were done after all.
SELECT s.job_id FROM th_steps s LEFT JOIN th_jobs j ON j.id = s.job_id
WHERE s.state = 'open' AND (j.id IS NULL OR j.status = 'dlq')
UNION ALL
SELECT s.job_id FROM th_steps s LEFT JOIN th_jobs j ON j.id = s.job_id
WHERE s.state = 'failed'
  AND (j.status IN ('ready', 'inflight')
       OR (j.id IS NULL AND (SELECT h.status FROM th_history h WHERE h.job_id = s.job_id AND h.final = 1
                             ORDER BY h.seq DESC LIMIT 1) = 'done'))
LIMIT :most;
