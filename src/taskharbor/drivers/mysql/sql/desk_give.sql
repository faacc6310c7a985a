-- Columns are set one after the other: due_was before due_at.
UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       tag VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.tag'
     )) AS item
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = item.id
SET job.due_was = job.due_at, job.due_at = CAST(item.tag AS DATETIME(6))
WHERE job.status = 'ready' AND job.due_was IS NULL
