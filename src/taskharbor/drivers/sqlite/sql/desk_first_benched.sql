SELECT job_id, position FROM th_bench INDEXED BY th_bench_line
 WHERE bucket = :bucket
 ORDER BY priority DESC, position, job_id
 LIMIT :most;
