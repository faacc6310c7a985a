-- Held jobs are due, or when their own time comes; one that was held by its time has none of its own. In whatever
-- order the columns are set, they come out the same.
UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS item
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = item.id
SET job.due_at = IF(job.run_at > :now AND job.run_at < '9999-01-01', job.run_at, :now), job.due_was = NULL,
    job.run_at = IF(job.run_at < '9999-01-01', job.run_at, NULL), job.updated_at = :now
WHERE job.status = 'ready' AND job.due_at >= '9999-01-01'
