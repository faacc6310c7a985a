SELECT job_id FROM th_bench LIMIT 1
