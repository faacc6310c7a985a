SELECT status FROM th_history WHERE job_id = :id AND final = 1 ORDER BY seq DESC LIMIT 1;
