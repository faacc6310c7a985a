-- The same for notes whose time has come; those of leases that were extended get the new end.
WITH over AS MATERIALIZED (
  SELECT r.bucket, r.job_id,
         (SELECT j.lease_expires_at FROM th_jobs j
          WHERE j.id = r.job_id AND j.lease_token = r.token AND j.lease_expires_at > :now) AS ends
  FROM th_running r
  WHERE r.until <= :now
  ORDER BY r.until
  LIMIT :most
  FOR UPDATE SKIP LOCKED
), kept AS (
  UPDATE th_running r SET until = over.ends FROM over
  WHERE r.job_id = over.job_id AND r.bucket = over.bucket AND over.ends IS NOT NULL
), gone AS (
  DELETE FROM th_running r USING over
  WHERE r.job_id = over.job_id AND r.bucket = over.bucket AND over.ends IS NULL
  RETURNING r.bucket
)
UPDATE th_buckets SET wake_at = '1970-01-01Z'
WHERE bucket = ANY (ARRAY(SELECT bucket FROM gone)) AND wake_at IS NOT NULL;
