SELECT bucket, scope, name, per FROM th_buckets
WHERE wake_at <= :now
  -- ?chosen  AND (SELECT b.job_id FROM th_bench b
  -- ?chosen       WHERE b.bucket = th_buckets.bucket
  -- ?chosen         AND COALESCE((SELECT j.status <> 'ready' OR (j.queue = ANY (CAST(:queues AS text[]))
  -- ?chosen                         AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
  -- ?chosen                         AND (CAST(:tenant AS text) IS NULL OR j.tenant_id = CAST(:tenant AS text)))
  -- ?chosen                       FROM th_jobs j WHERE j.id = b.job_id), true)
  -- ?chosen       LIMIT 1) IS NOT NULL
ORDER BY wake_at
LIMIT :most
FOR UPDATE SKIP LOCKED;
