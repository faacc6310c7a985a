-- The same jobs as in record_finished.sql, found in the same way.
DELETE FROM th_jobs
 WHERE rowid IN (SELECT job.rowid
                   FROM temp.th_ending AS ending
                  CROSS JOIN th_jobs AS job
                  WHERE job.id = ending.id
                    AND CASE WHEN lease_token = ending.token THEN status = 'inflight' AND lease_expires_at > :now END);
