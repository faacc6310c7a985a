SELECT s.number, s.job_id,
       COALESCE((SELECT j.status FROM th_jobs j WHERE j.id = s.job_id),
                (SELECT h.status FROM th_history h WHERE h.job_id = s.job_id AND h.final
                 ORDER BY h.xid DESC, h.seq DESC LIMIT 1)),
       (SELECT h.result FROM th_history h WHERE h.job_id = s.job_id AND h.final ORDER BY h.xid DESC, h.seq DESC LIMIT 1)
FROM th_steps s
WHERE s.workflow_id = :workflow_id AND s.number > :after AND (CAST(:part AS text) IS NULL OR s.part = CAST(:part AS text))
ORDER BY s.number LIMIT :most;
