INSERT INTO th_buckets (bucket, scope, name, per, tokens, counted_at)
SELECT bucket, scope, name, per, token, CAST(counted_at AS DATETIME(6))
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       scope VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.scope',
       name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name',
       per VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.per',
       token DOUBLE PATH '$.token',
       counted_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.counted_at'
     )) AS item
ON DUPLICATE KEY UPDATE th_buckets.tokens = VALUES(tokens), th_buckets.counted_at = VALUES(counted_at)
