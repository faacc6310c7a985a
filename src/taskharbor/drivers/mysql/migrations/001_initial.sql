-- MySQL and MariaDB cannot roll DDL back, so every statement here may run again: a migration that broke off half way
-- is simply repeated.
--
-- Text compares as bytes and trailing spaces count, as on every other store. The collation that does so has another
-- name on each server: MariaDB runs what stands in /*M! */, MySQL what stands in /*!80017 */, each skips the other.

CREATE TABLE IF NOT EXISTS th_jobs (
  id                  VARCHAR(64) NOT NULL PRIMARY KEY,
  type                VARCHAR(255) NOT NULL,
  queue               VARCHAR(255) NOT NULL,
  tenant_id           VARCHAR(64) NOT NULL DEFAULT 'default',
  payload             LONGBLOB NOT NULL,
  meta                TEXT NULL,
  priority            INT NOT NULL DEFAULT 0,
  run_at              DATETIME(6) NULL,
  due_at              DATETIME(6) NOT NULL,
  expires_at          DATETIME(6) NULL,
  timeout_nanos       BIGINT NOT NULL DEFAULT 0 CHECK (timeout_nanos >= 0),
  created_at          DATETIME(6) NOT NULL,
  updated_at          DATETIME(6) NOT NULL,
  attempts            INT NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  max_attempts        INT NOT NULL DEFAULT 0 CHECK (max_attempts >= 0),
  deliveries          INT NOT NULL DEFAULT 0 CHECK (deliveries >= 0),
  forgiven            INT NOT NULL DEFAULT 0 CHECK (forgiven >= 0),
  last_error          TEXT NOT NULL DEFAULT (''),
  failed_at           DATETIME(6) NULL,
  status              VARCHAR(16) NOT NULL DEFAULT 'ready'
                      CHECK (status IN ('ready', 'inflight', 'dlq', 'done', 'expired', 'cancelled')),
  lease_token         VARCHAR(64) NULL,
  lease_owner         VARCHAR(255) NULL,
  lease_expires_at    DATETIME(6) NULL,
  claimed_at          DATETIME(6) NULL,
  started_at          DATETIME(6) NULL,
  cancel_requested_at DATETIME(6) NULL,
  progress            MEDIUMTEXT NULL,
  dlq_reason          TEXT NULL,
  dlq_code            VARCHAR(64) NULL,
  dlq_failed_at       DATETIME(6) NULL,
  idempotency_key     VARCHAR(255) NULL,
  dedupe_scope        VARCHAR(128) NULL,

  -- The place of a job in the one index that claims and lease sweeps share. There are no descending indexes before
  -- MariaDB 10.8, so the rank is the priority turned round.
  claim_rank          INT GENERATED ALWAYS AS (IF(status = 'ready', -priority, 0)) STORED,
  claim_at            DATETIME(6) GENERATED ALWAYS AS (IF(status = 'inflight', lease_expires_at, due_at)) STORED,
  -- There are no partial indexes either: what cannot expire stands at the far end, where no sweep comes.
  expiry_at           DATETIME(6) GENERATED ALWAYS AS
                      (IF(status = 'ready' AND expires_at IS NOT NULL, expires_at, '9999-12-31 00:00:00')) STORED,

  -- Room for the lease: a claim gives it up, so that the row keeps its size and full pages need not be split.
  room                VARBINARY(64) NULL DEFAULT '----------------------------------------------------------------',

  CONSTRAINT th_jobs_lease_pair_chk
    CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
  CONSTRAINT th_jobs_inflight_requires_lease_chk
    CHECK (status <> 'inflight' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT th_jobs_dlq_requires_metadata_chk
    CHECK (status <> 'dlq' OR dlq_failed_at IS NOT NULL),

  -- InnoDB ends every index with the primary key, so this is the whole order of a claim.
  INDEX th_jobs_claim (status, queue, claim_rank, claim_at),
  INDEX th_jobs_expiry (queue, expiry_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row for each attempt that ended and each job that reached a terminal state; often both in one. A row with
-- `final` is the resting place of its job. The columns behind the empty line are filled for terminal rows alone.
-- `seq` comes from th_feed and orders the feed.
CREATE TABLE IF NOT EXISTS th_history (
  seq                 BIGINT NOT NULL PRIMARY KEY,
  job_id              VARCHAR(64) NOT NULL,
  type                VARCHAR(255) NOT NULL,
  queue               VARCHAR(255) NOT NULL,
  tenant_id           VARCHAR(64) NOT NULL,
  priority            INT NOT NULL,
  outcome             VARCHAR(16) NOT NULL,
  status              VARCHAR(16) NOT NULL,
  at                  DATETIME(6) NOT NULL,
  final               BOOLEAN NOT NULL,
  attempt_no          INT NULL,
  delivery            INT NOT NULL,
  error               TEXT NULL,
  code                VARCHAR(64) NULL,
  lease_token         VARCHAR(64) NULL,
  lease_owner         VARCHAR(255) NULL,
  due_at              DATETIME(6) NOT NULL,
  claimed_at          DATETIME(6) NULL,
  started_at          DATETIME(6) NULL,

  payload             LONGBLOB NULL,
  meta                TEXT NULL,
  run_at              DATETIME(6) NULL,
  expires_at          DATETIME(6) NULL,
  timeout_nanos       BIGINT NULL,
  max_attempts        INT NULL,
  attempts            INT NULL,
  forgiven            INT NULL,
  last_error          TEXT NULL,
  failed_at           DATETIME(6) NULL,
  cancel_requested_at DATETIME(6) NULL,
  idempotency_key     VARCHAR(255) NULL,
  dedupe_scope        VARCHAR(128) NULL,
  result              LONGBLOB NULL,
  progress            MEDIUMTEXT NULL,
  created_at          DATETIME(6) NULL,

  -- Wide enough to count finished jobs without reading them.
  INDEX th_history_job (job_id, final, status, queue)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- The last position of the feed. Whoever adds history holds this row from taking positions until the commit, so
-- positions become visible in their order, and those of a rolled back transaction are used again.
CREATE TABLE IF NOT EXISTS th_feed (
  id       TINYINT NOT NULL PRIMARY KEY,
  last_seq BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO th_feed (id, last_seq) VALUES (1, 0);

-- `taken_by` tells the call that took a key from one that found it taken, also when both name the same job.
CREATE TABLE IF NOT EXISTS th_keys (
  dedupe_scope    VARCHAR(128) NOT NULL,
  idempotency_key VARCHAR(255) NOT NULL,
  job_id          VARCHAR(64) NOT NULL,
  payload_hash    VARCHAR(64) NOT NULL,
  taken_at        DATETIME(6) NOT NULL,
  taken_by        VARCHAR(32) NOT NULL,
  expires_at      DATETIME(6) NULL,
  PRIMARY KEY (dedupe_scope, idempotency_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS th_workers (
  id             VARCHAR(255) NOT NULL PRIMARY KEY,
  hostname       TEXT NOT NULL,
  pid            BIGINT NOT NULL,
  queues         MEDIUMTEXT NOT NULL,
  slots          INT NOT NULL,
  version        TEXT NOT NULL,
  meta           MEDIUMTEXT NOT NULL,
  started_at     DATETIME(6) NOT NULL,
  last_heartbeat DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS th_leader (
  name   VARCHAR(255) NOT NULL PRIMARY KEY,
  holder VARCHAR(255) NOT NULL,
  epoch  BIGINT NOT NULL,
  until  DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS th_queues (
  name   VARCHAR(255) NOT NULL PRIMARY KEY,
  paused BOOLEAN NOT NULL DEFAULT FALSE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- A schedule enqueues jobs like this one again and again. next_run_at says when it does so next; NULL is never.
CREATE TABLE IF NOT EXISTS th_schedules (
  name          VARCHAR(255) NOT NULL PRIMARY KEY,
  spec          VARCHAR(255) NOT NULL,
  timezone      VARCHAR(255) NOT NULL,
  type          VARCHAR(255) NOT NULL,
  payload       LONGBLOB NOT NULL,
  queue         VARCHAR(255) NOT NULL,
  tenant_id     VARCHAR(64) NOT NULL,
  priority      INT NOT NULL,
  max_attempts  INT NULL,
  timeout_nanos BIGINT NOT NULL,
  meta          TEXT NULL,
  overlap       VARCHAR(16) NOT NULL,
  paused        BOOLEAN NOT NULL DEFAULT FALSE,
  next_run_at   DATETIME(6) NULL,
  last_run_at   DATETIME(6) NULL,
  last_job_id   VARCHAR(64) NULL,
  updated_at    DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Jobs on their way in: executors of a data pipeline stage them here, and the load is published in one transaction.
-- `run` and `attempt` are numbers that stand for the load and for the attempt of a task. What is null is the same for
-- all jobs of the load. A row with a reason is no job but a refused row.
CREATE TABLE IF NOT EXISTS th_staged (
  run             BIGINT NOT NULL,
  attempt         BIGINT NOT NULL,
  staged_at       DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  id              VARCHAR(64) NULL,
  type            VARCHAR(255) NULL,
  queue           VARCHAR(255) NULL,
  tenant_id       VARCHAR(64) NULL,
  priority        INT NULL,
  run_at          DATETIME(6) NULL,
  expires_at      DATETIME(6) NULL,
  timeout_nanos   BIGINT NULL,
  max_attempts    INT NULL,
  meta            TEXT NULL,
  idempotency_key VARCHAR(255) NULL,
  dedupe_scope    VARCHAR(128) NULL,
  payload         LONGBLOB NOT NULL,
  reject_reason   TEXT NULL,
  INDEX th_staged_run (run, attempt)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row for each load that was published, written in the transaction that published it.
CREATE TABLE IF NOT EXISTS th_loads (
  run_id       VARCHAR(255) NOT NULL PRIMARY KEY,
  rows_in      BIGINT NOT NULL DEFAULT 0,
  published    BIGINT NOT NULL DEFAULT 0,
  duplicates   BIGINT NOT NULL DEFAULT 0,
  rejected     BIGINT NOT NULL DEFAULT 0,
  published_at DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS th_meta (
  name  VARCHAR(64) NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
INSERT IGNORE INTO th_meta (name, value) VALUES ('store_id', UUID());

-- The attempt log in the words of MQ.
CREATE OR REPLACE VIEW th_attempts AS
  SELECT seq AS id, job_id, attempt_no, delivery, outcome, error AS reason, code, lease_owner AS worker, lease_token,
         due_at, claimed_at, started_at, at AS finished_at, outcome = 'succeeded' AS success,
         type, queue, tenant_id
  FROM th_history WHERE attempt_no IS NOT NULL;

-- The dead letters in the words of JQ and MQ.
CREATE OR REPLACE VIEW th_dlq AS
  SELECT id, id AS job_id, id AS task_id, type, queue, queue AS topic, tenant_id, payload, meta,
         attempts AS retries, dlq_code AS code, dlq_reason AS reason, last_error, dlq_failed_at AS failed_at
  FROM th_jobs WHERE status = 'dlq';

-- Every job, live or finished, as one table.
CREATE OR REPLACE VIEW th_all_jobs AS
SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
       attempts, deliveries, forgiven, last_error, failed_at, status, lease_token, lease_owner, lease_expires_at,
       cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key, dedupe_scope, NULL AS result,
       progress, created_at, updated_at, claimed_at, started_at, dlq_failed_at AS completed_at
  FROM th_jobs
UNION ALL
SELECT job_id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos, max_attempts,
       attempts, delivery, forgiven, COALESCE(last_error, ''), failed_at, status, NULL, NULL, NULL,
       cancel_requested_at, NULL, NULL, NULL, idempotency_key, dedupe_scope, result,
       progress, created_at, at, claimed_at, started_at, at
  FROM th_history
 WHERE final;
