INSERT OR REPLACE INTO th_running (bucket, job_id, token, until) VALUES (:bucket, :id, :token, :until);
