-- What waits for these steps waits for so many less; what waits for none any more is held.
UPDATE th_steps s
SET waiting = s.waiting - less.steps,
    state = CASE WHEN s.state = 'waiting' AND s.waiting <= less.steps THEN 'held' ELSE s.state END
FROM (SELECT e.workflow_id, e.effect, count(*) AS steps
      FROM unnest(CAST(:workflow_ids AS text[]), CAST(:numbers AS int[])) AS given (workflow_id, number)
      JOIN th_edges e ON e.workflow_id = given.workflow_id AND e.cause = given.number
      GROUP BY e.workflow_id, e.effect) less
WHERE s.workflow_id = less.workflow_id AND s.number = less.effect;
