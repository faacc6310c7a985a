SELECT given.id, held.number, held.job_id
FROM unnest(CAST(:ids AS text[])) AS given (id)
CROSS JOIN LATERAL (
  SELECT s.number, s.job_id FROM th_steps s
  WHERE s.workflow_id = given.id AND s.state = 'held'
  ORDER BY s.number
  LIMIT :most
) held
LIMIT :most;
