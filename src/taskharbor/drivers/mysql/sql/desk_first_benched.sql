SELECT job_id, position, bucket FROM th_bench FORCE INDEX (th_bench_line)
WHERE bucket = :bucket
ORDER BY place_rank, position, job_id
LIMIT :most
