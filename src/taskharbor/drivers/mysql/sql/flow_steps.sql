SELECT s.number, s.name, s.part, s.job_id, s.state, s.waiting,
       COALESCE((SELECT j.status FROM th_jobs j WHERE j.id = s.job_id),
                (SELECT h.status FROM th_history h FORCE INDEX (th_history_job) WHERE h.job_id = s.job_id AND h.final = 1
                 ORDER BY h.seq DESC LIMIT 1))
FROM th_steps s
WHERE s.workflow_id = :workflow_id AND s.number > :after
ORDER BY s.number LIMIT :most
