UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS item
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = item.id
SET job.due_at = '9999-01-01', job.due_was = NULL
WHERE job.status = 'ready'
