UPDATE JSON_TABLE(:items, '$[*]' COLUMNS (
         id               VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
         lease_expires_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.lease_expires_at',
         started_at       VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.started_at',
         progress         LONGTEXT CHARACTER SET utf8mb4 PATH '$.progress'
       )) AS extension
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = extension.id
SET job.lease_expires_at = extension.lease_expires_at,
    job.started_at = COALESCE(CAST(extension.started_at AS DATETIME(6)), job.started_at),
    job.progress = COALESCE(extension.progress, job.progress),
    job.updated_at = :now
