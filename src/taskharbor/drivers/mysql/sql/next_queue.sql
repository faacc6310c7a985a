SELECT queue FROM th_jobs FORCE INDEX (th_jobs_expiry) WHERE queue > :after ORDER BY queue LIMIT 1
