SELECT min(queue) FROM th_jobs INDEXED BY th_jobs_leases WHERE status = 'inflight' AND queue > :above;
