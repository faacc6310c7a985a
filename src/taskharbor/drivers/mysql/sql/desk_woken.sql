SELECT bucket, scope, name, per FROM th_buckets FORCE INDEX (th_buckets_wake)
WHERE wake_at <= :now
  -- ?chosen  AND (SELECT seat.job_id FROM th_bench AS seat FORCE INDEX (th_bench_line)
  -- ?chosen       WHERE seat.bucket = th_buckets.bucket
  -- ?chosen         AND COALESCE((SELECT j.status <> 'ready' OR (j.queue IN :queues AND (:any_type OR j.type IN :types)
  -- ?chosen                         AND (:any_tenant OR j.tenant_id = :tenant))
  -- ?chosen                       FROM th_jobs AS j FORCE INDEX (PRIMARY) WHERE j.id = seat.job_id), TRUE)
  -- ?chosen       LIMIT 1) IS NOT NULL
ORDER BY wake_at
LIMIT :most
FOR UPDATE SKIP LOCKED
