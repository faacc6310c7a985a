-- A limit of another queue holds nothing that is asked for; of the bench of one that spans queues nobody knows before.
SELECT bucket, scope, name, per FROM th_buckets
 WHERE wake_at IS NOT NULL AND wake_at <= :now
   AND CASE
         WHEN scope = 'queue' AND name NOT IN (SELECT value FROM json_each(:queues)) THEN 0
         WHEN scope = 'queue' AND :any THEN 1
         ELSE EXISTS (
           SELECT 1 FROM th_bench INDEXED BY th_bench_line
            WHERE th_bench.bucket = th_buckets.bucket
              AND coalesce((SELECT j.status <> 'ready' OR (j.queue IN (SELECT value FROM json_each(:queues))
                              AND (:types IS NULL OR j.type IN (SELECT value FROM json_each(:types)))
                              AND (:tenant IS NULL OR j.tenant_id = :tenant))
                            FROM th_jobs AS j WHERE j.id = th_bench.job_id), 1))
       END
 ORDER BY wake_at
 LIMIT :most;
