-- Held jobs are due, or when their own time comes; one that was held by its time has none of its own. Returns the
-- queues of those that are due. Joined and not `= ANY`, which may be tried on every held job.
WITH gone AS (
  UPDATE th_jobs j
  SET due_at = CASE WHEN j.run_at > :now AND j.run_at < '9999-01-01 00:00:00+00' THEN j.run_at ELSE :now END, due_was = NULL,
      run_at = CASE WHEN j.run_at < '9999-01-01 00:00:00+00' THEN j.run_at END, updated_at = :now
  FROM unnest(CAST(:ids AS text[])) AS given (id)
  WHERE j.id = given.id AND j.status = 'ready' AND j.due_at >= '9999-01-01 00:00:00+00'
  RETURNING j.queue, j.due_at
)
SELECT DISTINCT queue FROM gone WHERE due_at <= :now;
