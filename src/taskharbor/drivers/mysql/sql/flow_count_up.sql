-- What waits for these steps waits for so many more; what was held waits again.
UPDATE (SELECT e.effect, COUNT(*) AS steps
        FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       number INT PATH '$.number'
     )) AS item
        STRAIGHT_JOIN th_edges AS e FORCE INDEX (PRIMARY) ON e.workflow_id = :workflow_id AND e.cause = item.number
        GROUP BY e.effect) AS more
STRAIGHT_JOIN th_steps AS s FORCE INDEX (PRIMARY) ON s.workflow_id = :workflow_id AND s.number = more.effect
SET s.state = IF(s.state = 'held', 'waiting', s.state), s.waiting = s.waiting + more.steps
