-- Each part is counted on its own index, never on the table with the payloads. A job on a bench (253370764800000000 is the year
-- 9999) is due: it waits for something else than time.
SELECT queue, 'ready', count(*), total(due_at > :now AND due_at <> 253370764800000000) FROM th_jobs INDEXED BY th_jobs_ready
 WHERE status = 'ready' GROUP BY queue
UNION ALL
SELECT queue, 'inflight', count(*), 0 FROM th_jobs INDEXED BY th_jobs_leases WHERE status = 'inflight' GROUP BY queue
UNION ALL
SELECT queue, 'dlq', count(*), 0 FROM th_jobs INDEXED BY th_jobs_dead WHERE status = 'dlq' GROUP BY queue;
