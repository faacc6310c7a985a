-- Columns are set one after the other: due_at before due_was.
UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id')) AS item
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = item.id
SET job.due_at = job.due_was, job.due_was = NULL
