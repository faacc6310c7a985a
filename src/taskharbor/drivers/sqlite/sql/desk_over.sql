-- Notes of jobs that are not leased with the noted token any more. CROSS JOIN is an order to SQLite.
SELECT r.bucket, r.job_id
  FROM json_each(:ids) AS given
 CROSS JOIN th_running AS r INDEXED BY th_running_job
 WHERE r.job_id = given.value
   AND (SELECT j.lease_token FROM th_jobs AS j WHERE j.id = r.job_id) IS NOT r.token;
