-- A job on a bench is due: it waits for something else than time.
SELECT queue, status, count(*), count(*) FILTER (WHERE status = 'ready' AND due_at > :now AND due_at <> '9999-01-01Z') FROM th_jobs
GROUP BY queue, status
UNION ALL
SELECT queue, status, count(*), 0 FROM th_history WHERE final GROUP BY queue, status;
