SELECT r.job_id FROM json_each(:ids) AS given CROSS JOIN th_running AS r INDEXED BY th_running_job
 WHERE r.job_id = given.value
 LIMIT 1;
