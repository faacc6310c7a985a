UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket'
     )) AS struck
STRAIGHT_JOIN th_buckets AS b FORCE INDEX (PRIMARY) ON b.bucket = struck.bucket
SET b.wake_at = '1970-01-01'
WHERE b.wake_at IS NOT NULL
