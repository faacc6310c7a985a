-- due_was is when a job is truly due while a limit or a fair queue keeps something else in due_at.
SELECT queue, status, count(*), count(*) FILTER (WHERE status = 'ready' AND COALESCE(due_was, due_at) > :now) FROM th_jobs
GROUP BY queue, status
UNION ALL
SELECT queue, status, count(*), 0 FROM th_history WHERE final GROUP BY queue, status;
