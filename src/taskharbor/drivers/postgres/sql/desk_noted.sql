SELECT job_id FROM th_running WHERE job_id = ANY (CAST(:ids AS text[])) LIMIT 1;
