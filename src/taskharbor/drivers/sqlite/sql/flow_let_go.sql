-- Held jobs are due, or when their own time comes; one that was held by its time has none of its own.
UPDATE th_jobs
   SET due_at = CASE WHEN run_at > :now AND run_at < 253370764800000000 THEN run_at ELSE :now END, due_was = NULL,
       run_at = CASE WHEN run_at < 253370764800000000 THEN run_at END, updated_at = :now
 WHERE id = :id AND status = 'ready' AND due_at >= 253370764800000000;
