-- Notes whose time has come, with the end of the lease if it goes on.
SELECT r.bucket, r.job_id,
       (SELECT j.lease_expires_at FROM th_jobs AS j
         WHERE j.id = r.job_id AND j.lease_token = r.token AND j.lease_expires_at > :now) AS ends
  FROM th_running AS r INDEXED BY th_running_until
 WHERE r.until <= :now
 ORDER BY r.until
 LIMIT :most;
