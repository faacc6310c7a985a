-- What waits for these steps waits for so many more; what was held waits again.
UPDATE th_steps s
SET waiting = s.waiting + more.steps, state = CASE WHEN s.state = 'held' THEN 'waiting' ELSE s.state END
FROM (SELECT e.workflow_id, e.effect, count(*) AS steps
      FROM unnest(CAST(:workflow_ids AS text[]), CAST(:numbers AS int[])) AS given (workflow_id, number)
      JOIN th_edges e ON e.workflow_id = given.workflow_id AND e.cause = given.number
      GROUP BY e.workflow_id, e.effect) more
WHERE s.workflow_id = more.workflow_id AND s.number = more.effect;
