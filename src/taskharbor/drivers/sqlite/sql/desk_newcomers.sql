-- Due jobs of one level that have no tag: tags lie before the year 2000, which is 946684800000000.
SELECT priority, id, tenant_id
  FROM th_jobs INDEXED BY th_jobs_ready
 WHERE queue = :queue AND status = 'ready' AND priority = :priority AND due_at >= 946684800000000 AND due_at <= :now
 ORDER BY due_at, id
 LIMIT :most;
