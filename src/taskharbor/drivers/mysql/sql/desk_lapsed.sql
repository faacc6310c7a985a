-- Notes whose time has come, with the end of the lease if it goes on.
SELECT note.bucket, note.job_id,
       (SELECT job.lease_expires_at FROM th_jobs AS job
        WHERE job.id = note.job_id AND job.lease_token = note.token AND job.lease_expires_at > :now)
FROM th_running AS note FORCE INDEX (th_running_until)
WHERE note.until <= :now
ORDER BY note.until
LIMIT :most
