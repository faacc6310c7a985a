-- Notes of jobs that are not leased with the noted token any more go, and their buckets wake if they have a bench. The
-- look-up for each note keeps to the index of ids, whatever the planner believes the tables to hold.
WITH gone AS (
  DELETE FROM th_running r
  WHERE r.job_id = ANY (CAST(:ids AS text[]))
    AND (SELECT j.lease_token FROM th_jobs j WHERE j.id = r.job_id) IS DISTINCT FROM r.token
  RETURNING r.bucket
)
UPDATE th_buckets SET wake_at = '1970-01-01Z'
WHERE bucket = ANY (ARRAY(SELECT bucket FROM gone)) AND wake_at IS NOT NULL;
