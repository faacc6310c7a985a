-- Of those that are asked for, and also those that are not ready any more, so that they go.
SELECT job_id, position FROM th_bench INDEXED BY th_bench_line
 WHERE bucket = :bucket
   AND coalesce((SELECT j.status <> 'ready' OR (j.queue IN (SELECT value FROM json_each(:queues))
                   AND (:types IS NULL OR j.type IN (SELECT value FROM json_each(:types)))
                   AND (:tenant IS NULL OR j.tenant_id = :tenant))
                 FROM th_jobs AS j WHERE j.id = th_bench.job_id), 1)
 ORDER BY priority DESC, position, job_id
 LIMIT :most;
