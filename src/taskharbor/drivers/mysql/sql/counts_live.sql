-- Read from the claim index alone, where the due time of a ready job stands as claim_at. A job on a
-- bench, in the year 9999, is due: it waits for something else than time.
SELECT queue, status, COUNT(*), SUM(status = 'ready' AND claim_at > :now AND claim_at <> '9999-01-01')
FROM th_jobs FORCE INDEX (th_jobs_claim)
GROUP BY status, queue
