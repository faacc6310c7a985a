-- Held jobs are due; returns their queues. Joined and not `= ANY`, which may be tried on every held job.
WITH gone AS (
  UPDATE th_jobs j SET due_at = :now, due_was = NULL, updated_at = :now
  FROM unnest(CAST(:ids AS text[])) AS given (id)
  WHERE j.id = given.id AND j.status = 'ready' AND j.due_at >= '9999-01-01 00:00:00+00'
  RETURNING j.queue
)
SELECT DISTINCT queue FROM gone;
