-- What waits for these steps waits for so many more; what was held waits again.
UPDATE th_steps s
SET waiting = s.waiting + more.steps, state = CASE WHEN s.state = 'held' THEN 'waiting' ELSE s.state END
FROM (SELECT e.effect, count(*) AS steps
      FROM unnest(CAST(:numbers AS int[])) AS given (number)
      JOIN th_edges e ON e.workflow_id = :workflow_id AND e.cause = given.number
      GROUP BY e.effect) more
WHERE s.workflow_id = :workflow_id AND s.number = more.effect;
