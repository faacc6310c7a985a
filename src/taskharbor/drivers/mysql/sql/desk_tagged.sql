-- Ready jobs of a line with a tag. Tags lie before the year 2000.
SELECT id FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = -:priority AND claim_at < '2000-01-01' AND due_was IS NOT NULL
LIMIT :most
FOR UPDATE SKIP LOCKED
