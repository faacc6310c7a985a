SELECT queue, status, COUNT(*) FROM th_history FORCE INDEX (th_history_job) WHERE final = 1 GROUP BY queue, status
