DELETE note
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS struck
STRAIGHT_JOIN th_running AS note FORCE INDEX (PRIMARY) ON note.bucket = struck.bucket AND note.job_id = struck.id
