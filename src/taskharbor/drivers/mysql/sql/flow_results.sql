SELECT s.number, s.job_id,
       COALESCE((SELECT j.status FROM th_jobs j WHERE j.id = s.job_id),
                (SELECT h.status FROM th_history h FORCE INDEX (th_history_job) WHERE h.job_id = s.job_id AND h.final = 1
                 ORDER BY h.seq DESC LIMIT 1)),
       (SELECT h.result FROM th_history h FORCE INDEX (th_history_job) WHERE h.job_id = s.job_id AND h.final = 1 ORDER BY h.seq DESC LIMIT 1)
FROM th_steps s
WHERE s.workflow_id = :workflow_id AND s.number > :after AND (:part IS NULL OR s.part = :part)
ORDER BY s.number LIMIT :most
