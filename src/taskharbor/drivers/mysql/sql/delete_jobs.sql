-- By way of a join, because `id IN (…)` becomes a full scan where the server believes the table to be small, and a scan
-- waits for the rows of everybody else.
DELETE job
FROM JSON_TABLE(:items, '$[*]' COLUMNS (id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$')) AS gone
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = gone.id
