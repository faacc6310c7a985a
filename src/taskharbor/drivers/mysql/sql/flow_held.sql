-- In the order of the index, as they are joined: to sort them would read all of them first.
SELECT s.workflow_id, s.number, s.job_id
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS item
STRAIGHT_JOIN th_steps AS s FORCE INDEX (th_steps_moving) ON s.state = 'held' AND s.workflow_id = item.id
LIMIT :most
