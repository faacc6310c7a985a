-- Limits on what runs and starts, and queues that tenants share.

-- When the job is truly due, while due_at holds its place in a line of another kind: the tag of a job in a fair queue,
-- which lies before the year 2000, or the year 9999 for a job on the bench of a limit.
ALTER TABLE th_jobs ADD COLUMN due_was INTEGER NULL;

ALTER TABLE th_queues ADD COLUMN fair INTEGER NOT NULL DEFAULT 0;
ALTER TABLE th_queues ADD COLUMN weights TEXT NULL;

CREATE TABLE th_limits (
  scope       TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  per         TEXT    NOT NULL,
  concurrency INTEGER NULL,
  rate        REAL    NULL,
  burst       INTEGER NULL,
  PRIMARY KEY (scope, name, per)
) WITHOUT ROWID;

-- What a limit counts for itself. Only buckets with tokens or with a bench have a row; wake_at is set while there is a
-- bench, and says when to look at it.
CREATE TABLE th_buckets (
  bucket     TEXT    NOT NULL PRIMARY KEY,
  scope      TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  per        TEXT    NOT NULL,
  tokens     REAL    NULL,
  counted_at INTEGER NULL,
  wake_at    INTEGER NULL
) WITHOUT ROWID;
CREATE INDEX th_buckets_wake ON th_buckets (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX th_buckets_limit ON th_buckets (scope, name, per);

-- Ready jobs that wait for room in a bucket, with the place in line that they had.
CREATE TABLE th_bench (
  job_id   TEXT    NOT NULL PRIMARY KEY,
  bucket   TEXT    NOT NULL,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX th_bench_line ON th_bench (bucket, priority DESC, position, job_id);

-- Leased jobs that count in a bucket. A note whose job is not leased with its token any more counts for nothing and is
-- struck, at the latest when its time has come.
CREATE TABLE th_running (
  bucket TEXT    NOT NULL,
  job_id TEXT    NOT NULL,
  token  TEXT    NOT NULL,
  until  INTEGER NOT NULL,
  PRIMARY KEY (bucket, job_id)
) WITHOUT ROWID;
CREATE INDEX th_running_job ON th_running (job_id);
CREATE INDEX th_running_until ON th_running (until);

-- The last tag of each tenant in a line of a fair queue; the row without a tenant has the highest of all.
CREATE TABLE th_fair (
  queue     TEXT    NOT NULL,
  priority  INTEGER NOT NULL,
  tenant_id TEXT    NOT NULL,
  tag       INTEGER NOT NULL,
  PRIMARY KEY (queue, priority, tenant_id)
) WITHOUT ROWID;

-- Every job, live or finished, as one table, with its true due time.
DROP VIEW th_all_jobs;
CREATE VIEW th_all_jobs AS
SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, coalesce(due_was, due_at) AS due_at, expires_at,
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
