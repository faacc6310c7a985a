SELECT min(queue) FROM th_jobs INDEXED BY th_jobs_expiries
 WHERE status = 'ready' AND expires_at IS NOT NULL AND queue > :above;
