SELECT bucket, scope, name, per FROM th_buckets
 WHERE wake_at IS NOT NULL AND wake_at <= :now
   -- ?chosen  AND EXISTS (
   -- ?chosen    SELECT 1 FROM th_bench INDEXED BY th_bench_line
   -- ?chosen     WHERE th_bench.bucket = th_buckets.bucket
   -- ?chosen       AND coalesce((SELECT j.status <> 'ready' OR (j.queue IN (SELECT value FROM json_each(:queues))
   -- ?chosen                       AND (:types IS NULL OR j.type IN (SELECT value FROM json_each(:types)))
   -- ?chosen                       AND (:tenant IS NULL OR j.tenant_id = :tenant))
   -- ?chosen                     FROM th_jobs AS j WHERE j.id = th_bench.job_id), 1))
 ORDER BY wake_at
 LIMIT :most;
