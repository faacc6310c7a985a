SELECT DISTINCT queue FROM th_jobs WHERE status = 'inflight' AND lease_expires_at <= :now
UNION
SELECT DISTINCT queue FROM th_jobs WHERE status = 'ready' AND expires_at <= :now;
