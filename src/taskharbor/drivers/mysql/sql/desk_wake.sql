-- Buckets that have a bench now.
INSERT INTO th_buckets (bucket, scope, name, per, wake_at)
SELECT bucket, scope, name, per, CAST(wake_at AS DATETIME(6))
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       scope VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.scope',
       name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name',
       per VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.per',
       wake_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.wake_at'
     )) AS item
ON DUPLICATE KEY UPDATE th_buckets.wake_at = LEAST(COALESCE(th_buckets.wake_at, VALUES(wake_at)), VALUES(wake_at))
