REPLACE INTO th_bench (job_id, bucket, place_rank, position)
SELECT id, bucket, -priority, CAST(position AS DATETIME(6))
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       priority INT PATH '$.priority',
       position VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.position'
     )) AS item
