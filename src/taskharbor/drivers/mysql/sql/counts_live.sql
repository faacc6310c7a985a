-- Read from the claim index alone, where the due time of a ready job stands as claim_at.
SELECT queue, status, COUNT(*), SUM(status = 'ready' AND claim_at > :now)
FROM th_jobs FORCE INDEX (th_jobs_claim)
GROUP BY status, queue
