UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       workflow_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.workflow_id',
       number INT PATH '$.number'
     )) AS item
STRAIGHT_JOIN th_steps AS s FORCE INDEX (PRIMARY) ON s.workflow_id = item.workflow_id AND s.number = item.number
SET s.state = :state
