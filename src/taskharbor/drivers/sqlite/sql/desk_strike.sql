DELETE FROM th_running WHERE bucket = :bucket AND job_id = :job_id;
