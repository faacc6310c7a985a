UPDATE th_bench AS seat STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = seat.job_id
SET seat.position = job.due_was
WHERE job.queue = :queue AND job.due_was IS NOT NULL AND seat.position < '2000-01-01'
