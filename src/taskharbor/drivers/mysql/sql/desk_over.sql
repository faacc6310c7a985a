-- Notes of jobs that are not leased with the noted token any more.
SELECT note.bucket, note.job_id
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS given
STRAIGHT_JOIN th_running AS note FORCE INDEX (th_running_job) ON note.job_id = given.id
LEFT JOIN th_jobs AS job ON job.id = note.job_id
WHERE job.lease_token IS NULL OR job.lease_token <> note.token
