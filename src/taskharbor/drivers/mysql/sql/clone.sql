INSERT INTO th_jobs
  (id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
   created_at, updated_at)
SELECT copy.new_id, job.type, job.queue, job.tenant_id, job.payload, job.meta, job.priority, copy.run_at, copy.due_at,
       job.expires_at, job.timeout_nanos, job.max_attempts, :now, :now
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id     VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       new_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.new_id',
       run_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.run_at',
       due_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.due_at'
     )) AS copy
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = copy.id
