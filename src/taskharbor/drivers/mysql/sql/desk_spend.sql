-- Clocks differ a little: time that was counted once is never counted again.
INSERT INTO th_buckets (bucket, scope, name, per, tokens, counted_at)
SELECT bucket, scope, name, per, token, CAST(:now AS DATETIME(6))
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       scope VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.scope',
       name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name',
       per VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.per',
       token DOUBLE PATH '$.token'
     )) AS item
ON DUPLICATE KEY UPDATE
  th_buckets.tokens = VALUES(tokens),
  th_buckets.counted_at = GREATEST(COALESCE(th_buckets.counted_at, VALUES(counted_at)), VALUES(counted_at))
