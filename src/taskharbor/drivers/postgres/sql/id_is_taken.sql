-- Which of these ids already belong to a finished job. (A live one collides with the primary key.)
SELECT job_id FROM th_history WHERE final AND job_id = ANY (CAST(:ids AS text[])) LIMIT 1;
