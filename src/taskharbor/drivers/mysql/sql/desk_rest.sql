UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       until VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.until'
     )) AS item
STRAIGHT_JOIN th_buckets AS b FORCE INDEX (PRIMARY) ON b.bucket = item.bucket
SET b.wake_at = IF(EXISTS (SELECT 1 FROM th_bench AS seat WHERE seat.bucket = item.bucket),
                   CAST(item.until AS DATETIME(6)), NULL)
