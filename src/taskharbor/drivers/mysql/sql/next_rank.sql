-- The next lower level of priority in use, and when its first job is due.
SELECT claim_rank, claim_at FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank >= :from_rank
ORDER BY claim_rank, claim_at LIMIT 1
