-- Locking, because a plain read in the caller's REPEATABLE READ transaction may be of an hour ago.
SELECT status FROM th_history FORCE INDEX (th_history_job) WHERE job_id = :id AND final = 1
ORDER BY seq DESC LIMIT 1 FOR UPDATE
