-- What waits for these steps waits for so many less; what waits for none any more is held. The state goes first: it
-- needs the old count.
UPDATE (SELECT e.workflow_id, e.effect, COUNT(*) AS steps
        FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       workflow_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.workflow_id',
       number INT PATH '$.number'
     )) AS item
        STRAIGHT_JOIN th_edges AS e FORCE INDEX (PRIMARY) ON e.workflow_id = item.workflow_id AND e.cause = item.number
        GROUP BY e.workflow_id, e.effect) AS less
STRAIGHT_JOIN th_steps AS s FORCE INDEX (PRIMARY) ON s.workflow_id = less.workflow_id AND s.number = less.effect
SET s.state = IF(s.state = 'waiting' AND s.waiting <= less.steps, 'held', s.state),
    s.waiting = s.waiting - less.steps
