UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       position VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.position'
     )) AS back
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = back.id
SET job.due_was = IF(CAST(back.position AS DATETIME(6)) = job.due_was, NULL, job.due_was),
    job.due_at = CAST(back.position AS DATETIME(6))
WHERE job.status = 'ready' AND job.due_at = '9999-01-01'
