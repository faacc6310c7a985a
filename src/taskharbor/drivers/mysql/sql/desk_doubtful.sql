-- Notes that no lease bears out, or none that lasts so long.
SELECT note.bucket, note.job_id
FROM th_running AS note
WHERE NOT EXISTS (SELECT 1 FROM th_jobs AS job
                  WHERE job.id = note.job_id AND job.lease_token = note.token AND job.lease_expires_at >= note.until)
  -- ?some  AND note.job_id IN :ids
