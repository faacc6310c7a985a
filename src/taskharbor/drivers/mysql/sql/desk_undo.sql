-- Leases that this transaction made are undone. A job with a bucket is put where no claim walks over it. Columns are
-- set one after the other: due_was before due_at.
UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       bucket VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bucket',
       position VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.position',
       progress LONGTEXT CHARACTER SET utf8mb4 PATH '$.progress',
       updated_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.updated_at'
     )) AS item
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = item.id
SET job.status = 'ready',
    job.lease_token = NULL,
    job.lease_owner = NULL,
    job.lease_expires_at = NULL,
    job.claimed_at = NULL,
    job.deliveries = job.deliveries - 1,
    job.progress = item.progress,
    job.updated_at = CAST(item.updated_at AS DATETIME(6)),
    job.due_was = IF(item.bucket = '' AND CAST(item.position AS DATETIME(6)) = job.due_at, NULL, job.due_at),
    job.due_at = IF(item.bucket = '', CAST(item.position AS DATETIME(6)), '9999-01-01')
