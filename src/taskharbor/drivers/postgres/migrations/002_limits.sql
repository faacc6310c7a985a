-- Limits on what runs and starts, and queues that tenants share.

-- When the job is truly due, while due_at holds its place in a line of another kind: the tag of a job in a fair queue,
-- which lies before the year 2000, or the year 9999 for a job on the bench of a limit.
ALTER TABLE th_jobs ADD COLUMN due_was TIMESTAMPTZ NULL;

ALTER TABLE th_queues ADD COLUMN fair BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE th_queues ADD COLUMN weights TEXT NULL;

CREATE TABLE th_limits (
  scope       TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  per         TEXT COLLATE "C" NOT NULL,
  concurrency INT NULL,
  rate        DOUBLE PRECISION NULL,
  burst       INT NULL,
  PRIMARY KEY (scope, name, per)
);

-- What a limit counts for itself. Only buckets with tokens or with a bench have a row; wake_at is set while there is a
-- bench, and says when to look at it.
CREATE TABLE th_buckets (
  bucket     TEXT COLLATE "C" PRIMARY KEY,
  scope      TEXT COLLATE "C" NOT NULL,
  name       TEXT COLLATE "C" NOT NULL,
  per        TEXT COLLATE "C" NOT NULL,
  tokens     DOUBLE PRECISION NULL,
  counted_at TIMESTAMPTZ NULL,
  wake_at    TIMESTAMPTZ NULL
)
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX th_buckets_wake ON th_buckets (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX th_buckets_limit ON th_buckets (scope, name, per);

-- Ready jobs that wait for room in a bucket, with the place in line that they had.
CREATE TABLE th_bench (
  job_id   TEXT COLLATE "C" PRIMARY KEY,
  bucket   TEXT COLLATE "C" NOT NULL,
  priority INT NOT NULL,
  position TIMESTAMPTZ NOT NULL
)
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX th_bench_line ON th_bench (bucket, priority DESC, position, job_id);

-- Leased jobs that count in a bucket. A note whose job is not leased with its token any more counts for nothing and is
-- struck, at the latest when its time has come.
CREATE TABLE th_running (
  bucket TEXT COLLATE "C" NOT NULL,
  job_id TEXT COLLATE "C" NOT NULL,
  token  TEXT COLLATE "C" NOT NULL,
  until  TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (bucket, job_id)
)
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX th_running_job ON th_running (job_id);
CREATE INDEX th_running_until ON th_running (until);

-- The last tag of each tenant in a line of a fair queue; the row without a tenant has the highest of all.
CREATE TABLE th_fair (
  queue     TEXT COLLATE "C" NOT NULL,
  priority  INT NOT NULL,
  tenant_id TEXT COLLATE "C" NOT NULL,
  tag       BIGINT NOT NULL,
  PRIMARY KEY (queue, priority, tenant_id)
);

-- Every job, live or finished, as one table, with its true due time.
CREATE OR REPLACE VIEW th_all_jobs AS
  SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, COALESCE(due_was, due_at) AS due_at, expires_at,
         timeout_nanos, max_attempts, attempts, deliveries, forgiven, last_error, failed_at, status, lease_token,
         lease_owner, lease_expires_at, cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key,
         dedupe_scope, CAST(NULL AS bytea) AS result, progress, created_at, updated_at, claimed_at, started_at,
         dlq_failed_at AS completed_at
  FROM th_jobs
  UNION ALL
  SELECT job_id AS id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at,
         COALESCE(timeout_nanos, 0), max_attempts, COALESCE(attempts, 0), delivery AS deliveries,
         COALESCE(forgiven, 0), COALESCE(last_error, ''), failed_at, status, NULL, NULL, NULL, cancel_requested_at,
         NULL, NULL, NULL, idempotency_key, dedupe_scope, result, progress, created_at, at, claimed_at, started_at, at
  FROM th_history WHERE final;
