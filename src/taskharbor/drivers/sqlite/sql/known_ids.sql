-- Whether a job has this id, or had it.
SELECT 1 FROM th_jobs WHERE id = :id
UNION ALL
SELECT 1 FROM th_history INDEXED BY th_history_jobs WHERE job_id = :id
LIMIT 1;
