-- The due times at the head of one level, to share a claim out among several queues.
SELECT claim_at, id FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = :rank AND claim_at <= :now
  AND (expires_at IS NULL OR expires_at > :now)
  AND (:any_type OR type IN :types)
ORDER BY claim_at, id LIMIT :limit
