-- The head of each line of one queue: what a reserve will find, without locking anything.
SELECT
  :queue AS queue,
  COALESCE((SELECT paused FROM th_queues WHERE name = :queue), 0) AS paused,
  (SELECT claim_at FROM th_jobs FORCE INDEX (th_jobs_claim)
   WHERE status = 'inflight' AND queue = :queue AND claim_rank = 0
   ORDER BY claim_at LIMIT 1) AS first_lease_end,
  (SELECT expiry_at FROM th_jobs FORCE INDEX (th_jobs_expiry)
   WHERE queue = :queue ORDER BY expiry_at LIMIT 1) AS first_expiry,
  (SELECT CONCAT(claim_rank, ' ', claim_at) FROM th_jobs FORCE INDEX (th_jobs_claim)
   WHERE status = 'ready' AND queue = :queue
   ORDER BY claim_rank, claim_at LIMIT 1) AS first_ready
