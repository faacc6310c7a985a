-- A limit of another queue holds nothing that is asked for; of the bench of one that spans queues nobody knows before.
SELECT bucket, scope, name, per FROM th_buckets FORCE INDEX (th_buckets_wake)
WHERE wake_at <= :now
  AND CASE
        WHEN scope = 'queue' AND name NOT IN :queues THEN FALSE
        WHEN scope = 'queue' AND :any THEN TRUE
        ELSE (SELECT seat.job_id FROM th_bench AS seat FORCE INDEX (th_bench_line)
              WHERE seat.bucket = th_buckets.bucket
                AND COALESCE((SELECT j.status <> 'ready' OR (j.queue IN :queues AND (:any_type OR j.type IN :types)
                                AND (:any_tenant OR j.tenant_id = :tenant))
                              FROM th_jobs AS j FORCE INDEX (PRIMARY) WHERE j.id = seat.job_id), TRUE)
              LIMIT 1) IS NOT NULL
      END
ORDER BY wake_at
LIMIT :most
FOR UPDATE SKIP LOCKED
