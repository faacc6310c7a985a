SELECT job_id FROM th_history WHERE job_id IN :ids AND final = 1 LIMIT 1
