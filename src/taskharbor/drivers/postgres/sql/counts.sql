SELECT queue, status, count(*), count(*) FILTER (WHERE status = 'ready' AND due_at > :now) FROM th_jobs
GROUP BY queue, status
UNION ALL
SELECT queue, status, count(*), 0 FROM th_history WHERE final GROUP BY queue, status;
