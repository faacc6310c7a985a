-- Among the next jobs in line, from one level of priority on down: the first level with a job due, and the last level
-- seen. The first job of a level is the first of it to be due, so a level of which one job is seen is known.
-- With two values each, of which one is never there, for status and queue: if they were fixed, MariaDB would by some
-- statistics look them up and walk from the first level on, over everything that waits for later.
SELECT MIN(IF(claim_at <= :now, claim_rank, NULL)), MAX(claim_rank) FROM (
  SELECT claim_rank, claim_at FROM th_jobs FORCE INDEX (th_jobs_claim)
  WHERE status IN ('', 'ready') AND queue IN ('', :queue) AND claim_rank >= :from_rank
  ORDER BY status, queue, claim_rank, claim_at LIMIT :window
) AS next_in_line
