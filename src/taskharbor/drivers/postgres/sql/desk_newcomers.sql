-- Due jobs of a fair queue that have no tag, from the highest priority down, as `claim` goes.
WITH RECURSIVE level AS (
  (SELECT priority FROM th_jobs WHERE status = 'ready' AND queue = :queue ORDER BY priority DESC LIMIT 1)
  UNION ALL
  SELECT (SELECT j.priority FROM th_jobs j
          WHERE j.status = 'ready' AND j.queue = :queue AND j.priority < level.priority
          ORDER BY j.priority DESC LIMIT 1)
  FROM level WHERE level.priority IS NOT NULL
)
SELECT level.priority, due.id, due.tenant_id FROM level CROSS JOIN LATERAL (
  SELECT j.id, j.tenant_id FROM th_jobs j
  WHERE j.status = 'ready' AND j.queue = :queue AND j.priority = level.priority
    AND j.due_at >= '2000-01-01Z' AND j.due_at <= :now
  ORDER BY j.due_at, j.id
  LIMIT :most
  FOR UPDATE SKIP LOCKED
) due
LIMIT :most;
