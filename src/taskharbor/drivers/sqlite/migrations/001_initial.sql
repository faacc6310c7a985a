-- Times are INTEGER microseconds since 1970 in UTC; flags are 0 or 1.

-- Live jobs only: ready, inflight and dlq. A job that is done, expired or cancelled has left for th_history.
CREATE TABLE th_jobs (
  id                  TEXT    NOT NULL PRIMARY KEY,
  type                TEXT    NOT NULL,
  queue               TEXT    NOT NULL,
  tenant_id           TEXT    NOT NULL,
  status              TEXT    NOT NULL DEFAULT 'ready'
                      CHECK (status IN ('ready', 'inflight', 'dlq', 'done', 'expired', 'cancelled')),
  priority            INTEGER NOT NULL DEFAULT 0,
  -- When the caller asked for it to run; NULL is at once.
  run_at              INTEGER NULL,
  -- When it became, or becomes, due. Jobs of one priority run in this order.
  due_at              INTEGER NOT NULL,
  expires_at          INTEGER NULL,
  timeout_nanos       INTEGER NOT NULL DEFAULT 0 CHECK (timeout_nanos >= 0),
  max_attempts        INTEGER NOT NULL DEFAULT 0 CHECK (max_attempts >= 0),
  attempts            INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  deliveries          INTEGER NOT NULL DEFAULT 0 CHECK (deliveries >= 0),
  forgiven            INTEGER NOT NULL DEFAULT 0 CHECK (forgiven >= 0),
  lease_token         TEXT    NULL,
  lease_owner         TEXT    NULL,
  lease_expires_at    INTEGER NULL,
  cancel_requested_at INTEGER NULL,
  created_at          INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL,
  claimed_at          INTEGER NULL,
  started_at          INTEGER NULL,
  failed_at           INTEGER NULL,
  dlq_reason          TEXT    NULL,
  dlq_code            TEXT    NULL,
  dlq_failed_at       INTEGER NULL,
  idempotency_key     TEXT    NULL,
  dedupe_scope        TEXT    NULL,
  progress            TEXT    NULL,
  last_error          TEXT    NOT NULL DEFAULT '',
  meta                TEXT    NULL,
  payload             BLOB    NOT NULL,

  CONSTRAINT th_jobs_lease_pair_chk
    CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
  CONSTRAINT th_jobs_inflight_requires_lease_chk
    CHECK (status <> 'inflight' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT th_jobs_dlq_requires_metadata_chk
    CHECK (status <> 'dlq' OR dlq_failed_at IS NOT NULL)
);

-- The claim reads this one from its beginning: it is in the order in which jobs run.
CREATE INDEX th_jobs_ready ON th_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE INDEX th_jobs_leases ON th_jobs (queue, lease_expires_at) WHERE status = 'inflight';
CREATE INDEX th_jobs_expiries ON th_jobs (queue, expires_at, id) WHERE status = 'ready' AND expires_at IS NOT NULL;
CREATE INDEX th_jobs_dead ON th_jobs (id, queue) WHERE status = 'dlq';

-- One row per fact: an attempt ended, a job reached a terminal state, or both. A row with final = 1 is the finished
-- job itself. AUTOINCREMENT, because a number that was pruned must not come again behind a reader of the feed.
CREATE TABLE th_history (
  seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id              TEXT    NOT NULL,
  type                TEXT    NOT NULL,
  queue               TEXT    NOT NULL,
  tenant_id           TEXT    NOT NULL,
  priority            INTEGER NOT NULL,
  outcome             TEXT    NOT NULL,
  status              TEXT    NOT NULL,
  at                  INTEGER NOT NULL,
  final               INTEGER NOT NULL,
  attempt_no          INTEGER NULL,
  delivery            INTEGER NOT NULL,
  error               TEXT    NULL,
  code                TEXT    NULL,
  lease_token         TEXT    NULL,
  lease_owner         TEXT    NULL,
  due_at              INTEGER NOT NULL,
  claimed_at          INTEGER NULL,
  started_at          INTEGER NULL,
  -- From here on only when status is terminal.
  payload             BLOB    NULL,
  meta                TEXT    NULL,
  run_at              INTEGER NULL,
  expires_at          INTEGER NULL,
  timeout_nanos       INTEGER NULL,
  max_attempts        INTEGER NULL,
  attempts            INTEGER NULL,
  forgiven            INTEGER NULL,
  last_error          TEXT    NULL,
  failed_at           INTEGER NULL,
  cancel_requested_at INTEGER NULL,
  idempotency_key     TEXT    NULL,
  dedupe_scope        TEXT    NULL,
  result              BLOB    NULL,
  progress            TEXT    NULL,
  created_at          INTEGER NULL
);

CREATE INDEX th_history_jobs ON th_history (job_id);
-- For counts, and for pruning what ended long ago.
CREATE INDEX th_history_ended ON th_history (final, status, queue, at) WHERE status <> 'ready';

CREATE TABLE th_keys (
  dedupe_scope    TEXT    NOT NULL,
  idempotency_key TEXT    NOT NULL,
  job_id          TEXT    NOT NULL,
  payload_hash    TEXT    NOT NULL,
  expires_at      INTEGER NULL,
  PRIMARY KEY (dedupe_scope, idempotency_key)
) WITHOUT ROWID;

CREATE TABLE th_workers (
  id             TEXT    NOT NULL PRIMARY KEY,
  hostname       TEXT    NOT NULL,
  pid            INTEGER NOT NULL,
  queues         TEXT    NOT NULL,
  slots          INTEGER NOT NULL,
  version        TEXT    NOT NULL,
  started_at     INTEGER NOT NULL,
  last_heartbeat INTEGER NOT NULL,
  meta           TEXT    NOT NULL
);

CREATE TABLE th_leader (
  name   TEXT    NOT NULL PRIMARY KEY,
  holder TEXT    NOT NULL,
  epoch  INTEGER NOT NULL,
  until  INTEGER NOT NULL
);

CREATE TABLE th_queues (
  name   TEXT    NOT NULL PRIMARY KEY,
  paused INTEGER NOT NULL DEFAULT 0
);

-- A schedule enqueues jobs like this one again and again. next_run_at says when it does so next; NULL is never.
CREATE TABLE th_schedules (
  name          TEXT    NOT NULL PRIMARY KEY,
  spec          TEXT    NOT NULL,
  timezone      TEXT    NOT NULL,
  type          TEXT    NOT NULL,
  payload       BLOB    NOT NULL,
  queue         TEXT    NOT NULL,
  tenant_id     TEXT    NOT NULL,
  priority      INTEGER NOT NULL,
  max_attempts  INTEGER NULL,
  timeout_nanos INTEGER NOT NULL,
  meta          TEXT    NULL,
  overlap       TEXT    NOT NULL,
  paused        INTEGER NOT NULL DEFAULT 0,
  next_run_at   INTEGER NULL,
  last_run_at   INTEGER NULL,
  last_job_id   TEXT    NULL,
  updated_at    INTEGER NOT NULL
);

-- One row for each load of a data pipeline that was published, written in the transaction that published it.
CREATE TABLE th_loads (
  run_id       TEXT    NOT NULL PRIMARY KEY,
  rows_in      INTEGER NOT NULL,
  published    INTEGER NOT NULL,
  duplicates   INTEGER NOT NULL,
  rejected     INTEGER NOT NULL,
  published_at INTEGER NOT NULL
);

CREATE TABLE th_meta (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

CREATE TABLE th_migrations (
  version    INTEGER NOT NULL PRIMARY KEY,
  name       TEXT    NOT NULL,
  applied_at INTEGER NOT NULL
);

CREATE VIEW th_attempts AS
SELECT seq AS id, job_id, attempt_no, error AS reason, started_at, at AS finished_at,
       outcome = 'succeeded' AS success, outcome, delivery, lease_owner AS worker
  FROM th_history
 WHERE attempt_no IS NOT NULL;

CREATE VIEW th_dlq AS
SELECT id, id AS job_id, id AS task_id, queue, queue AS topic, tenant_id, payload, meta, attempts AS retries,
       dlq_reason AS reason, last_error, dlq_code AS code, dlq_failed_at AS failed_at
  FROM th_jobs
 WHERE status = 'dlq';

-- Every job, live or finished, as one table.
CREATE VIEW th_all_jobs AS
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

INSERT INTO th_meta (key, value) VALUES ('store_id', lower(hex(randomblob(16))));
