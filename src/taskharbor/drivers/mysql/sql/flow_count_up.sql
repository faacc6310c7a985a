-- What waits for these steps waits for so many more; what was held waits again.
UPDATE (SELECT e.workflow_id, e.effect, COUNT(*) AS steps
        FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       workflow_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.workflow_id',
       number INT PATH '$.number'
     )) AS item
        STRAIGHT_JOIN th_edges AS e FORCE INDEX (PRIMARY) ON e.workflow_id = item.workflow_id AND e.cause = item.number
        GROUP BY e.workflow_id, e.effect) AS more
STRAIGHT_JOIN th_steps AS s FORCE INDEX (PRIMARY) ON s.workflow_id = more.workflow_id AND s.number = more.effect
SET s.state = IF(s.state = 'held', 'waiting', s.state), s.waiting = s.waiting + more.steps
