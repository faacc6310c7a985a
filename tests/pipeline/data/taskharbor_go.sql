-- Seed 000: jobs in every state.
CREATE TABLE th_jobs (
  id TEXT PRIMARY KEY, type TEXT NOT NULL, queue TEXT NOT NULL, payload BYTEA NOT NULL, run_at TIMESTAMPTZ NULL,
  timeout_nanos BIGINT NOT NULL DEFAULT 0 CHECK (timeout_nanos >= 0), created_at TIMESTAMPTZ NOT NULL,
  attempts INT NOT NULL DEFAULT 0 CHECK (attempts >= 0), max_attempts INT NOT NULL DEFAULT 0 CHECK (max_attempts >= 0),
  last_error TEXT NOT NULL DEFAULT '', failed_at TIMESTAMPTZ NULL,
  status TEXT NOT NULL DEFAULT 'ready' CHECK (status IN ('ready','inflight','dlq','done')),
  lease_token TEXT NULL, lease_expires_at TIMESTAMPTZ NULL, dlq_reason TEXT NULL, dlq_failed_at TIMESTAMPTZ NULL,
  idempotency_key TEXT NULL,
  CONSTRAINT th_jobs_lease_pair_chk CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
  CONSTRAINT th_jobs_inflight_requires_lease_chk
    CHECK (status <> 'inflight' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT th_jobs_dlq_requires_metadata_chk CHECK (status <> 'dlq' OR (dlq_failed_at IS NOT NULL)));
INSERT INTO th_jobs (id, type, queue, payload, created_at, run_at, timeout_nanos, attempts, max_attempts, last_error,
                     failed_at, status, lease_token, lease_expires_at, dlq_reason, dlq_failed_at, idempotency_key) VALUES
 ('go-ready', 'mail', 'q', '{"n":1}', '2025-01-01 10:00Z', NULL, 1500000000, 0, 3, '', NULL, 'ready', NULL, NULL, NULL, NULL, 'k1'),
 ('go-later', 'mail', 'q', '{"n":2}', '2025-01-01 10:00Z', '2099-01-01 00:00Z', 0, 0, 0, '', NULL, 'ready', NULL, NULL, NULL, NULL, NULL),
 ('go-retry', 'mail', 'q', '{"n":3}', '2025-01-01 10:00Z', '2025-01-01 11:00Z', 0, 2, 5, 'timed out', '2025-01-01 10:30Z', 'ready', NULL, NULL, NULL, NULL, NULL),
 ('go-lease', 'mail', 'q', '{"n":4}', '2025-01-01 10:00Z', NULL, 0, 0, 5, '', NULL, 'inflight', 'not-hex!', '2025-01-01 10:05Z', NULL, NULL, NULL),
 ('go-dead', 'mail', 'q', '{"n":5}', '2025-01-01 10:00Z', NULL, 0, 3, 3, 'boom', '2025-01-01 10:20Z', 'dlq', NULL, NULL, 'boom at last', '2025-01-01 10:21Z', NULL),
 ('go-done', 'mail', 'q', '{"n":6}', '2025-01-01 10:00Z', NULL, 0, 1, 5, 'once', '2025-01-01 10:10Z', 'done', NULL, NULL, NULL, NULL, 'k6'),
 ('go-same-key', 'mail', 'q', '{"n":7}', '2025-01-01 10:00Z', NULL, 0, 0, 5, '', NULL, 'ready', NULL, NULL, NULL, NULL, 'k1');
