-- Ready jobs of a line with a tag. Tags lie before the year 2000.
SELECT id FROM th_jobs
WHERE status = 'ready' AND queue = :queue AND priority = :priority AND due_at < '2000-01-01Z' AND due_was IS NOT NULL
LIMIT :most
FOR UPDATE SKIP LOCKED;
