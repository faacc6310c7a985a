DELETE gone FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS item
STRAIGHT_JOIN th_workflows AS gone FORCE INDEX (PRIMARY) ON gone.id = item.id
