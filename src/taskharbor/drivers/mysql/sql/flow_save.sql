UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       state VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.state',
       done INT PATH '$.done',
       failed INT PATH '$.failed',
       ended_at DATETIME(6) PATH '$.ended_at'
     )) AS item
STRAIGHT_JOIN th_workflows AS w FORCE INDEX (PRIMARY) ON w.id = item.id
SET w.state = item.state, w.done = item.done, w.failed = item.failed, w.ended_at = item.ended_at
