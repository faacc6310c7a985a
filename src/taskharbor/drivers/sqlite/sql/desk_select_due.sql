-- select_due.sql at a desk: also what the rows hold now, so that leases can be undone.
SELECT rowid, id, type, queue, tenant_id, payload, meta, priority, run_at, coalesce(due_was, due_at), expires_at, timeout_nanos,
       max_attempts, attempts, deliveries, forgiven, last_error, failed_at, idempotency_key, dedupe_scope, created_at,
       due_at, progress, updated_at
  FROM th_jobs INDEXED BY th_jobs_ready
 WHERE queue = :queue AND status = 'ready' AND priority = :priority AND due_at <= :now
   AND (expires_at IS NULL OR expires_at > :now)
   AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
   -- ?tenant  AND tenant_id = :tenant
 ORDER BY due_at, id
 LIMIT :limit;
