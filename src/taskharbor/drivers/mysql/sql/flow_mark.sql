UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       number INT PATH '$.number'
     )) AS item
STRAIGHT_JOIN th_steps AS s FORCE INDEX (PRIMARY) ON s.workflow_id = :workflow_id AND s.number = item.number
SET s.state = :state
