-- Ready jobs of a line with a tag. Tags lie before the year 2000, which is 946684800000000.
SELECT id
  FROM th_jobs INDEXED BY th_jobs_ready
 WHERE queue = :queue AND status = 'ready' AND priority = :priority AND due_at < 946684800000000
   AND due_was IS NOT NULL
 LIMIT :most;
