UPDATE th_bench
   SET position = (SELECT due_was FROM th_jobs WHERE id = th_bench.job_id)
 WHERE position < 946684800000000
   AND (SELECT queue = :queue AND due_was IS NOT NULL FROM th_jobs WHERE id = th_bench.job_id);
