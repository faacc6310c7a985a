-- A limit of another queue holds nothing that is asked for; of the bench of one that spans queues nobody knows before.
SELECT bucket, scope, name, per FROM th_buckets
WHERE wake_at <= :now
  AND CASE
        WHEN scope = 'queue' AND name <> ALL (CAST(:queues AS text[])) THEN false
        WHEN scope = 'queue' AND CAST(:any AS boolean) THEN true
        ELSE (SELECT b.job_id FROM th_bench b
              WHERE b.bucket = th_buckets.bucket
                AND COALESCE((SELECT j.status <> 'ready' OR (j.queue = ANY (CAST(:queues AS text[]))
                                AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
                                AND (CAST(:tenant AS text) IS NULL OR j.tenant_id = CAST(:tenant AS text)))
                              FROM th_jobs j WHERE j.id = b.job_id), true)
              LIMIT 1) IS NOT NULL
      END
ORDER BY wake_at
LIMIT :most
FOR UPDATE SKIP LOCKED;
