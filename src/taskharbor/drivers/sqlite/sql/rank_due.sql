-- Only the order of the first jobs of a level, to share a batch out among several queues.
SELECT due_at, id, queue
  FROM th_jobs INDEXED BY th_jobs_ready
 WHERE queue = :queue AND status = 'ready' AND priority = :priority AND due_at <= :now
   AND (expires_at IS NULL OR expires_at > :now)
   AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
   -- ?tenant  AND tenant_id = :tenant
 ORDER BY due_at, id
 LIMIT :limit;
