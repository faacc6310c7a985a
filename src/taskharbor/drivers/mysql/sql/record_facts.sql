-- The fact is as core decided it; what the job brings along, payload first of all, never leaves the server.
INSERT INTO th_history
  (seq, job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
   lease_token, lease_owner, due_at, claimed_at, started_at,
   payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
   cancel_requested_at, idempotency_key, dedupe_scope, result, progress, created_at)
SELECT
   fact.seq, job.id, job.type, job.queue, job.tenant_id, job.priority, fact.outcome, fact.status, :now, fact.final,
   fact.attempt_no, job.deliveries, fact.error, fact.code, fact.lease_token, fact.lease_owner,
   COALESCE(job.due_was, job.due_at),
   CAST(fact.claimed_at AS DATETIME(6)), CAST(fact.started_at AS DATETIME(6)),
   IF(fact.terminal, job.payload, NULL), IF(fact.terminal, job.meta, NULL), IF(fact.terminal, job.run_at, NULL),
   IF(fact.terminal, job.expires_at, NULL), IF(fact.terminal, job.timeout_nanos, NULL),
   IF(fact.terminal, job.max_attempts, NULL), fact.attempts, fact.forgiven, fact.last_error,
   CAST(fact.failed_at AS DATETIME(6)), CAST(fact.cancel_requested_at AS DATETIME(6)),
   IF(fact.terminal, job.idempotency_key, NULL), IF(fact.terminal, job.dedupe_scope, NULL), UNHEX(fact.result),
   IF(fact.terminal, job.progress, NULL), IF(fact.terminal, job.created_at, NULL)
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id                  VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       seq                 BIGINT PATH '$.seq',
       outcome             VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.outcome',
       status              VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.status',
       final               INT PATH '$.final',
       terminal            INT PATH '$.terminal',
       attempt_no          INT PATH '$.attempt_no',
       error               LONGTEXT CHARACTER SET utf8mb4 PATH '$.error',
       code                VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.code',
       lease_token         VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.lease_token',
       lease_owner         VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.lease_owner',
       claimed_at          VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.claimed_at',
       started_at          VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.started_at',
       attempts            INT PATH '$.attempts',
       forgiven            INT PATH '$.forgiven',
       last_error          LONGTEXT CHARACTER SET utf8mb4 PATH '$.last_error',
       failed_at           VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.failed_at',
       cancel_requested_at VARCHAR(26) CHARACTER SET utf8mb4 PATH '$.cancel_requested_at',
       result              LONGTEXT CHARACTER SET utf8mb4 PATH '$.result'
     )) AS fact
STRAIGHT_JOIN th_jobs AS job FORCE INDEX (PRIMARY) ON job.id = fact.id
