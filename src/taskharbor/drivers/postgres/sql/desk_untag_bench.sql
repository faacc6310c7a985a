UPDATE th_bench b SET position = j.due_was
FROM th_jobs j
WHERE j.id = b.job_id AND j.queue = :queue AND j.due_was IS NOT NULL AND b.position < '2000-01-01Z';
