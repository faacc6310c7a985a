SELECT id FROM th_jobs FORCE INDEX (th_jobs_expiry)
WHERE queue = :queue AND expiry_at <= :now
ORDER BY expiry_at LIMIT :limit
FOR UPDATE SKIP LOCKED
