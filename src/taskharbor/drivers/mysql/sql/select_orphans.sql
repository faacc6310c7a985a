SELECT id FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'inflight' AND lease_owner IN :owners
LIMIT :limit
FOR UPDATE
