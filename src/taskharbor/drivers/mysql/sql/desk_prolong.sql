UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       until VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.until'
     )) AS kept
STRAIGHT_JOIN th_running AS note FORCE INDEX (PRIMARY) ON note.bucket = kept.bucket AND note.job_id = kept.id
SET note.until = kept.until
