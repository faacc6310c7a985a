SELECT id FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'inflight' AND queue = :queue AND claim_rank = 0 AND claim_at <= :now
ORDER BY claim_at LIMIT :limit
FOR UPDATE SKIP LOCKED
