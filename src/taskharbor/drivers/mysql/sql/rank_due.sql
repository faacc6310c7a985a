-- The places at the head of one level, behind one that is known, to share a claim out among several queues.
SELECT :queue AS queue, claim_at, id FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = :rank AND claim_at <= :now
  AND claim_at >= :after AND (claim_at > :after OR id > :after_id)
  AND (expires_at IS NULL OR expires_at > :now)
  AND (:any_type OR type IN :types)
  -- ?tenant  AND tenant_id = :tenant
ORDER BY claim_at, id LIMIT :limit
