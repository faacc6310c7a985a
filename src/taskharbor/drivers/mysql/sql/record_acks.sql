-- Checks each lease, locks its job and records the success in one go: as many rows as items, or somebody lost a lease.
INSERT INTO th_history
  (seq, job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
   lease_token, lease_owner, due_at, claimed_at, started_at,
   payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
   cancel_requested_at, idempotency_key, dedupe_scope, result, progress, created_at)
SELECT
   ack.seq, job.id, job.type, job.queue, job.tenant_id, job.priority, 'succeeded', 'done', :now, 1, job.attempts + 1,
   job.deliveries, '', NULL, job.lease_token, job.lease_owner, job.due_at, job.claimed_at,
   COALESCE(CAST(ack.started_at AS DATETIME(6)), job.started_at, job.claimed_at),
   job.payload, job.meta, job.run_at, job.expires_at, job.timeout_nanos, job.max_attempts, job.attempts, job.forgiven,
   job.last_error, job.failed_at, job.cancel_requested_at, job.idempotency_key, job.dedupe_scope, UNHEX(ack.result),
   job.progress, job.created_at
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id         VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       token      VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.token',
       seq        BIGINT PATH '$.seq',
       started_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.started_at',
       result     LONGTEXT CHARACTER SET utf8mb4 PATH '$.result'
     )) AS ack
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = ack.id
WHERE job.lease_token = ack.token AND job.status = 'inflight' AND job.lease_expires_at > :now
FOR UPDATE
