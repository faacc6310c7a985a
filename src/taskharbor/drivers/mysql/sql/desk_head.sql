SELECT claim_at FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = :rank AND claim_at < '2000-01-01' AND due_was IS NOT NULL
ORDER BY claim_at, id LIMIT 1
