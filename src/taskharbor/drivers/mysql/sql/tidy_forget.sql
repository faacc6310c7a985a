DELETE b
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket'
     )) AS item
STRAIGHT_JOIN th_buckets AS b FORCE INDEX (PRIMARY) ON b.bucket = item.bucket
WHERE b.wake_at IS NULL
