SELECT due_at FROM th_jobs
WHERE status = 'ready' AND queue = :queue AND priority = :priority AND due_at < '2000-01-01Z' AND due_was IS NOT NULL
ORDER BY due_at, id
LIMIT 1;
