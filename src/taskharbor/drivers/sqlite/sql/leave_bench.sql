DELETE FROM th_bench WHERE job_id = :id;
