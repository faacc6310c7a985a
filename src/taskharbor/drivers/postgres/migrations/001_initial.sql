-- Text compares as bytes (COLLATE "C") so that order and uniqueness are the same on every store.

CREATE TABLE th_jobs (
  id                  TEXT COLLATE "C" NOT NULL,
  type                TEXT COLLATE "C" NOT NULL,
  queue               TEXT COLLATE "C" NOT NULL,
  tenant_id           TEXT COLLATE "C" NOT NULL DEFAULT 'default',
  payload             BYTEA NOT NULL,
  meta                TEXT NULL,
  priority            INT NOT NULL DEFAULT 0,
  run_at              TIMESTAMPTZ NULL,
  due_at              TIMESTAMPTZ NOT NULL,
  expires_at          TIMESTAMPTZ NULL,
  timeout_nanos       BIGINT NOT NULL DEFAULT 0,
  created_at          TIMESTAMPTZ NOT NULL,
  updated_at          TIMESTAMPTZ NOT NULL,
  attempts            INT NOT NULL DEFAULT 0,
  max_attempts        INT NOT NULL DEFAULT 0,
  deliveries          INT NOT NULL DEFAULT 0,
  forgiven            INT NOT NULL DEFAULT 0,
  last_error          TEXT NOT NULL DEFAULT '',
  failed_at           TIMESTAMPTZ NULL,
  status              TEXT COLLATE "C" NOT NULL DEFAULT 'ready'
                      CHECK (status IN ('ready', 'inflight', 'dlq', 'done', 'expired', 'cancelled')),
  lease_token         TEXT COLLATE "C" NULL,
  lease_owner         TEXT COLLATE "C" NULL,
  lease_expires_at    TIMESTAMPTZ NULL,
  claimed_at          TIMESTAMPTZ NULL,
  started_at          TIMESTAMPTZ NULL,
  cancel_requested_at TIMESTAMPTZ NULL,
  progress            TEXT NULL,
  dlq_reason          TEXT NULL,
  dlq_code            TEXT COLLATE "C" NULL,
  dlq_failed_at       TIMESTAMPTZ NULL,
  idempotency_key     TEXT COLLATE "C" NULL,
  dedupe_scope        TEXT COLLATE "C" NULL,

  -- A claim writes every entry a second time. Room for both keeps pages from splitting under it.
  PRIMARY KEY (id) WITH (fillfactor = 70),
  -- Each constraint costs every insert a little: these are one.
  CONSTRAINT th_jobs_counters_chk
    CHECK (least(attempts, max_attempts, deliveries, forgiven) >= 0 AND timeout_nanos >= 0),
  CONSTRAINT th_jobs_lease_pair_chk
    CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
  CONSTRAINT th_jobs_inflight_requires_lease_chk
    CHECK (status <> 'inflight' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT th_jobs_dlq_requires_metadata_chk
    CHECK (status <> 'dlq' OR dlq_failed_at IS NOT NULL)
)
-- Rows come and go quickly: vacuum by what has gone, not by a share of a table that is usually small.
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
      autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The order of a claim. Leased and dead jobs are not in it.
CREATE INDEX th_jobs_claim ON th_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE INDEX th_jobs_lease ON th_jobs (queue, lease_expires_at) WHERE status = 'inflight';
CREATE INDEX th_jobs_expiry ON th_jobs (queue, expires_at) WHERE status = 'ready' AND expires_at IS NOT NULL;
CREATE INDEX th_jobs_dlq ON th_jobs (id) WHERE status = 'dlq';

-- One row for each attempt that ended and each job that reached a terminal state; often both in one. A row with
-- `final` is the resting place of its job. (xid, seq) is the order of the feed: readers stop below the oldest
-- transaction still running.
-- The table only grows, so a row is kept small: columns stand by width, so that none is padded, tokens are bytes, and
-- those marked with 0 are null in place of zero. What stands behind the empty line is filled for terminal rows alone.
CREATE TABLE th_history (
  xid                 XID8 NOT NULL DEFAULT pg_current_xact_id(),
  seq                 BIGINT GENERATED ALWAYS AS IDENTITY,
  at                  TIMESTAMPTZ NOT NULL,
  due_at              TIMESTAMPTZ NOT NULL,
  claimed_at          TIMESTAMPTZ NULL,
  started_at          TIMESTAMPTZ NULL,
  created_at          TIMESTAMPTZ NULL, -- terminal rows
  priority            INT NOT NULL,
  attempt_no          INT NULL,
  delivery            INT NOT NULL,
  max_attempts        INT NULL, -- terminal rows
  final               BOOLEAN NOT NULL,
  job_id              TEXT COLLATE "C" NOT NULL,
  type                TEXT COLLATE "C" NOT NULL,
  queue               TEXT COLLATE "C" NOT NULL,
  tenant_id           TEXT COLLATE "C" NOT NULL,
  outcome             TEXT COLLATE "C" NOT NULL,
  status              TEXT COLLATE "C" NOT NULL,
  lease_token         BYTEA NULL,
  lease_owner         TEXT COLLATE "C" NULL,
  error               TEXT NULL,
  code                TEXT COLLATE "C" NULL,

  payload             BYTEA NULL,
  result              BYTEA NULL,
  meta                TEXT NULL,
  progress            TEXT NULL,
  run_at              TIMESTAMPTZ NULL,
  expires_at          TIMESTAMPTZ NULL,
  timeout_nanos       BIGINT NULL, -- 0
  attempts            INT NULL, -- 0
  forgiven            INT NULL, -- 0
  last_error          TEXT NULL,
  failed_at           TIMESTAMPTZ NULL,
  cancel_requested_at TIMESTAMPTZ NULL,
  idempotency_key     TEXT COLLATE "C" NULL,
  dedupe_scope        TEXT COLLATE "C" NULL,

  PRIMARY KEY (xid, seq)
);

CREATE INDEX th_history_job ON th_history (job_id);

CREATE TABLE th_keys (
  dedupe_scope    TEXT COLLATE "C" NOT NULL,
  idempotency_key TEXT COLLATE "C" NOT NULL,
  job_id          TEXT COLLATE "C" NOT NULL,
  payload_hash    TEXT COLLATE "C" NOT NULL,
  expires_at      TIMESTAMPTZ NULL,
  PRIMARY KEY (dedupe_scope, idempotency_key)
);

CREATE TABLE th_workers (
  id             TEXT COLLATE "C" PRIMARY KEY,
  hostname       TEXT NOT NULL,
  pid            BIGINT NOT NULL,
  queues         TEXT NOT NULL,
  slots          INT NOT NULL,
  version        TEXT NOT NULL,
  meta           TEXT NOT NULL,
  started_at     TIMESTAMPTZ NOT NULL,
  last_heartbeat TIMESTAMPTZ NOT NULL
);

CREATE TABLE th_leader (
  name   TEXT COLLATE "C" PRIMARY KEY,
  holder TEXT COLLATE "C" NOT NULL,
  epoch  BIGINT NOT NULL,
  until  TIMESTAMPTZ NOT NULL
);

CREATE TABLE th_queues (
  name   TEXT COLLATE "C" PRIMARY KEY,
  paused BOOLEAN NOT NULL DEFAULT FALSE
);

-- A schedule enqueues jobs like this one again and again. next_run_at says when it does so next; NULL is never.
CREATE TABLE th_schedules (
  name          TEXT COLLATE "C" PRIMARY KEY,
  spec          TEXT COLLATE "C" NOT NULL,
  timezone      TEXT COLLATE "C" NOT NULL,
  type          TEXT COLLATE "C" NOT NULL,
  payload       BYTEA NOT NULL,
  queue         TEXT COLLATE "C" NOT NULL,
  tenant_id     TEXT COLLATE "C" NOT NULL,
  priority      INT NOT NULL,
  max_attempts  INT NULL,
  timeout_nanos BIGINT NOT NULL,
  meta          TEXT NULL,
  overlap       TEXT COLLATE "C" NOT NULL,
  paused        BOOLEAN NOT NULL DEFAULT FALSE,
  next_run_at   TIMESTAMPTZ NULL,
  last_run_at   TIMESTAMPTZ NULL,
  last_job_id   TEXT COLLATE "C" NULL,
  updated_at    TIMESTAMPTZ NOT NULL
);

-- Jobs on their way in: executors of a data pipeline stage them here, and the load is published in one transaction.
-- Not logged and without indexes, because it is written once and read once; what a crash of the server takes away is
-- noticed before anything is published. `run` and `attempt` are numbers that stand for the load and for the attempt
-- of a task. What is null is the same for all jobs of the load. A row with a reason is no job but a refused row.
CREATE UNLOGGED TABLE th_staged (
  run             BIGINT NOT NULL,
  attempt         BIGINT NOT NULL,
  staged_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
  run_at          TIMESTAMPTZ NULL,
  expires_at      TIMESTAMPTZ NULL,
  timeout_nanos   BIGINT NULL,
  priority        INT NULL,
  max_attempts    INT NULL,
  id              TEXT COLLATE "C" NULL,
  type            TEXT COLLATE "C" NULL,
  queue           TEXT COLLATE "C" NULL,
  tenant_id       TEXT COLLATE "C" NULL,
  idempotency_key TEXT COLLATE "C" NULL,
  dedupe_scope    TEXT COLLATE "C" NULL,
  meta            TEXT NULL,
  payload         BYTEA NOT NULL,
  reject_reason   TEXT NULL
);

-- One row for each load that was published, written in the transaction that published it.
CREATE TABLE th_loads (
  run_id       TEXT COLLATE "C" PRIMARY KEY,
  rows_in      BIGINT NOT NULL DEFAULT 0,
  published    BIGINT NOT NULL DEFAULT 0,
  duplicates   BIGINT NOT NULL DEFAULT 0,
  rejected     BIGINT NOT NULL DEFAULT 0,
  published_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE th_meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO th_meta (key, value) VALUES
  ('store_id', gen_random_uuid()::text),
  ('cluster', (SELECT system_identifier FROM pg_control_system())::text);

-- The attempt log in the words of MQ.
CREATE VIEW th_attempts AS
  SELECT seq AS id, job_id, attempt_no, delivery, outcome, error AS reason, code, lease_owner AS worker,
         encode(lease_token, 'hex') AS lease_token,
         due_at, claimed_at, started_at, at AS finished_at, outcome = 'succeeded' AS success,
         type, queue, tenant_id
  FROM th_history WHERE attempt_no IS NOT NULL;

-- The dead letters in the words of JQ and MQ.
CREATE VIEW th_dlq AS
  SELECT id, id AS job_id, id AS task_id, type, queue, queue AS topic, tenant_id, payload, meta,
         attempts AS retries, dlq_code AS code, dlq_reason AS reason, last_error, dlq_failed_at AS failed_at
  FROM th_jobs WHERE status = 'dlq';

-- Every job, live or finished, as one table.
CREATE VIEW th_all_jobs AS
  SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
         max_attempts, attempts, deliveries, forgiven, last_error, failed_at, status, lease_token, lease_owner,
         lease_expires_at, cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key,
         dedupe_scope, CAST(NULL AS bytea) AS result, progress, created_at, updated_at, claimed_at, started_at,
         dlq_failed_at AS completed_at
  FROM th_jobs
  UNION ALL
  SELECT job_id AS id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at,
         COALESCE(timeout_nanos, 0), max_attempts, COALESCE(attempts, 0), delivery AS deliveries,
         COALESCE(forgiven, 0), COALESCE(last_error, ''), failed_at, status, NULL, NULL, NULL, cancel_requested_at, NULL, NULL, NULL, idempotency_key,
         dedupe_scope, result, progress, created_at, at, claimed_at, started_at, at
  FROM th_history WHERE final;
