SELECT note.job_id
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS given
STRAIGHT_JOIN th_running AS note FORCE INDEX (th_running_job) ON note.job_id = given.id
LIMIT 1
