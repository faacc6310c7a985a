SELECT due_at FROM th_jobs INDEXED BY th_jobs_ready
 WHERE status = 'ready' AND queue = :queue AND priority = :priority AND due_at < 946684800000000 AND due_was IS NOT NULL
 ORDER BY due_at, id
 LIMIT 1;
