-- Each part is counted on its own index, never on the table with the payloads. A job on a bench stands in the year 9999
-- (253370764800000000) and is due: it waits for something else than time. So does a step of a workflow that others hold
-- back, but that one is not due.
SELECT queue, 'ready', count(*),
       total(due_at > :now AND (due_at <> 253370764800000000
                                OR NOT EXISTS (SELECT 1 FROM th_bench WHERE th_bench.job_id = th_jobs.id)))
  FROM th_jobs INDEXED BY th_jobs_ready
 WHERE status = 'ready' GROUP BY queue
UNION ALL
SELECT queue, 'inflight', count(*), 0 FROM th_jobs INDEXED BY th_jobs_leases WHERE status = 'inflight' GROUP BY queue
UNION ALL
SELECT queue, 'dlq', count(*), 0 FROM th_jobs INDEXED BY th_jobs_dead WHERE status = 'dlq' GROUP BY queue;
