-- Due jobs of one level that have no tag: tags lie before the year 2000.
SELECT -claim_rank, id, tenant_id FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = :rank AND claim_at >= '2000-01-01' AND claim_at <= :now
ORDER BY claim_at, id LIMIT :most
FOR UPDATE SKIP LOCKED
