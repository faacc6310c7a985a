SELECT MIN(claim_rank) FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank >= :from_rank
