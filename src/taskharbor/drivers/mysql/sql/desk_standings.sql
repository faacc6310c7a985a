SELECT note.bucket, COUNT(*), NULL, NULL
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket'
     )) AS given
STRAIGHT_JOIN th_running AS note FORCE INDEX (PRIMARY) ON note.bucket = given.bucket
GROUP BY note.bucket
UNION ALL
SELECT b.bucket, 0, b.tokens, b.counted_at
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket'
     )) AS given
STRAIGHT_JOIN th_buckets AS b FORCE INDEX (PRIMARY) ON b.bucket = given.bucket
WHERE b.tokens IS NOT NULL
