DELETE FROM th_history INDEXED BY th_history_jobs WHERE job_id = :id;
