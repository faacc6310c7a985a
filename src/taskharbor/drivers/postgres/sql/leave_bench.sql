DELETE FROM th_bench WHERE job_id = ANY (CAST(:ids AS text[]));
