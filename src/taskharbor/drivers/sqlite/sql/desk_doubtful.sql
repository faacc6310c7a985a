-- Notes that no lease bears out, or none that lasts so long.
SELECT r.bucket, r.job_id
  FROM th_running AS r
 WHERE NOT EXISTS (SELECT 1 FROM th_jobs AS j
                    WHERE j.id = r.job_id AND j.lease_token = r.token AND j.lease_expires_at >= r.until)
   -- ?some  AND r.job_id IN (SELECT value FROM json_each(:ids))
;
