SELECT status FROM th_history WHERE job_id = :id AND final ORDER BY xid DESC, seq DESC LIMIT 1;
