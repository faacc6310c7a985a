-- Limits on what runs and starts, and queues that tenants share. Every statement may run again.

-- When the job is truly due, while due_at holds its place in a line of another kind: the tag of a job in a fair queue,
-- which lies before the year 2000, or the year 9999 for a job on the bench of a limit.
-- MySQL has no ADD COLUMN IF NOT EXISTS: the server makes up the statement that is still needed.
SET @th_statement = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'th_jobs' AND column_name = 'due_was'),
  'DO 0', 'ALTER TABLE th_jobs ADD COLUMN due_was DATETIME(6) NULL');
PREPARE th_change FROM @th_statement;
EXECUTE th_change;
DEALLOCATE PREPARE th_change;

SET @th_statement = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'th_queues' AND column_name = 'fair'),
  'DO 0', 'ALTER TABLE th_queues ADD COLUMN fair BOOLEAN NOT NULL DEFAULT FALSE, ADD COLUMN weights MEDIUMTEXT NULL');
PREPARE th_change FROM @th_statement;
EXECUTE th_change;
DEALLOCATE PREPARE th_change;

CREATE TABLE IF NOT EXISTS th_limits (
  scope       VARCHAR(16) NOT NULL,
  name        VARCHAR(255) NOT NULL,
  per         VARCHAR(16) NOT NULL,
  concurrency INT NULL,
  rate        DOUBLE NULL,
  burst       INT NULL,
  PRIMARY KEY (scope, name, per)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- What a limit counts for itself. Only buckets with tokens or with a bench have a row; wake_at is set while there is a
-- bench, and says when to look at it.
CREATE TABLE IF NOT EXISTS th_buckets (
  bucket     VARCHAR(190) NOT NULL PRIMARY KEY,
  scope      VARCHAR(16) NOT NULL,
  name       VARCHAR(255) NOT NULL,
  per        VARCHAR(16) NOT NULL,
  tokens     DOUBLE NULL,
  counted_at DATETIME(6) NULL,
  wake_at    DATETIME(6) NULL,
  INDEX th_buckets_wake (wake_at),
  INDEX th_buckets_limit (scope, name, per)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Ready jobs that wait for room in a bucket, with the place in line that they had; `place_rank` is the priority turned
-- round.
CREATE TABLE IF NOT EXISTS th_bench (
  job_id     VARCHAR(64) NOT NULL PRIMARY KEY,
  bucket     VARCHAR(190) NOT NULL,
  place_rank INT NOT NULL,
  position   DATETIME(6) NOT NULL,
  INDEX th_bench_line (bucket, place_rank, position)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Leased jobs that count in a bucket. A note whose job is not leased with its token any more counts for nothing and is
-- struck, at the latest when its time has come.
CREATE TABLE IF NOT EXISTS th_running (
  bucket VARCHAR(190) NOT NULL,
  job_id VARCHAR(64) NOT NULL,
  token  VARCHAR(64) NOT NULL,
  until  DATETIME(6) NOT NULL,
  PRIMARY KEY (bucket, job_id),
  INDEX th_running_job (job_id),
  INDEX th_running_until (until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- The last tag of each tenant in a line of a fair queue; the row without a tenant has the highest of all.
CREATE TABLE IF NOT EXISTS th_fair (
  queue     VARCHAR(255) NOT NULL,
  priority  INT NOT NULL,
  tenant_id VARCHAR(64) NOT NULL,
  tag       BIGINT NOT NULL,
  PRIMARY KEY (queue, priority, tenant_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Every job, live or finished, as one table, with its true due time.
CREATE OR REPLACE VIEW th_all_jobs AS
SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, COALESCE(due_was, due_at) AS due_at, expires_at,
       timeout_nanos, max_attempts, attempts, deliveries, forgiven, last_error, failed_at, status, lease_token,
       lease_owner, lease_expires_at, cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key,
       dedupe_scope, NULL AS result, progress, created_at, updated_at, claimed_at, started_at,
       dlq_failed_at AS completed_at
  FROM th_jobs
UNION ALL
SELECT job_id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
       attempts, delivery, forgiven, COALESCE(last_error, ''), failed_at, status, NULL, NULL, NULL,
       cancel_requested_at, NULL, NULL, NULL, idempotency_key, dedupe_scope, result,
       progress, created_at, at, claimed_at, started_at, at
  FROM th_history
 WHERE final;
