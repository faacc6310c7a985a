-- Of those that are asked for, and also those that are not ready any more, so that they go.
SELECT job_id, position, bucket FROM th_bench FORCE INDEX (th_bench_line)
WHERE bucket = :bucket
  AND COALESCE((SELECT j.status <> 'ready' OR (j.queue IN :queues AND (:any_type OR j.type IN :types)
                  AND (:any_tenant OR j.tenant_id = :tenant))
                FROM th_jobs AS j FORCE INDEX (PRIMARY) WHERE j.id = th_bench.job_id), TRUE)
ORDER BY place_rank, position, job_id
LIMIT :most
