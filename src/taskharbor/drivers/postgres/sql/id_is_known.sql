-- Whether there is a job with this id, live or finished.
SELECT id FROM th_jobs WHERE id = :id
UNION ALL
SELECT job_id FROM th_history WHERE job_id = :id AND final
LIMIT 1;
