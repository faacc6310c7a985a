-- Read from the claim index alone, where the due time of a ready job stands as claim_at. A job on a bench stands in the
-- year 9999 and is due: it waits for something else than time. So does a step of a workflow that others hold back, but
-- that one is not due.
SELECT queue, status, COUNT(*),
       SUM(status = 'ready' AND claim_at > :now
           AND (claim_at <> '9999-01-01' OR NOT EXISTS (SELECT 1 FROM th_bench WHERE th_bench.job_id = th_jobs.id)))
FROM th_jobs FORCE INDEX (th_jobs_claim)
GROUP BY status, queue
