INSERT INTO th_running (bucket, job_id, token, until)
SELECT bucket, id, item.token, CAST(item.until AS DATETIME(6))
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       token VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.token',
       until VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.until'
     )) AS item
ON DUPLICATE KEY UPDATE th_running.token = VALUES(token), th_running.until = VALUES(until)
