-- Seed 004: tasks in every state.
CREATE TYPE task_status AS ENUM ('pending', 'claimed', 'running', 'completed', 'failed', 'dead_letter');
CREATE TABLE tasks (
  id UUID PRIMARY KEY DEFAULT gen_random_uuid(), type TEXT NOT NULL, payload JSONB NULL,
  status task_status NOT NULL DEFAULT 'pending', priority INT NOT NULL DEFAULT 0, idempotency_key TEXT NULL,
  worker_id TEXT NULL, created_at TIMESTAMP NOT NULL DEFAULT NOW(), claimed_at TIMESTAMP NULL,
  started_at TIMESTAMP NULL, completed_at TIMESTAMP NULL, updated_at TIMESTAMP NOT NULL DEFAULT NOW(),
  attempts INT NOT NULL DEFAULT 0, max_retries INT NOT NULL DEFAULT 3, last_error TEXT NULL,
  next_retry_at TIMESTAMP NULL, CONSTRAINT unique_idempotency_key UNIQUE (type, idempotency_key));
CREATE TABLE workers (
  id TEXT PRIMARY KEY, hostname TEXT NOT NULL, started_at TIMESTAMP NOT NULL DEFAULT NOW(),
  last_heartbeat TIMESTAMP NOT NULL DEFAULT NOW(), pool_size INT NOT NULL, version TEXT NULL,
  is_leader BOOLEAN NOT NULL DEFAULT FALSE, leader_until TIMESTAMP NULL);
INSERT INTO workers (id, hostname, pool_size) VALUES ('w-1', 'one', 4), ('w-2', 'two', 4);
INSERT INTO tasks (id, type, payload, status, priority, idempotency_key, worker_id, created_at, claimed_at, started_at,
                   completed_at, updated_at, attempts, max_retries, last_error, next_retry_at) VALUES
 ('00000000-0000-0000-0000-000000000001', 'task:backup', '{"n": 1}', 'pending', 5, 'k1', NULL, '2025-01-01 10:00', NULL, NULL, NULL, '2025-01-01 10:00', 0, 3, NULL, NULL),
 ('00000000-0000-0000-0000-000000000002', 'task:other', NULL, 'pending', 0, 'k1', NULL, '2025-01-01 10:00', NULL, NULL, NULL, '2025-01-01 10:30', 1, 3, 'slow', '2099-01-01 00:00'),
 ('00000000-0000-0000-0000-000000000003', 'task:backup', '{}', 'claimed', 0, NULL, 'w-1', '2025-01-01 10:00', '2025-01-01 10:01', NULL, NULL, '2025-01-01 10:01', 1, 3, NULL, NULL),
 ('00000000-0000-0000-0000-000000000004', 'task:backup', '{}', 'running', 0, NULL, 'w-1', '2025-01-01 10:00', '2025-01-01 10:01', '2025-01-01 10:02', NULL, '2025-01-01 10:02', 1, 3, NULL, NULL),
 ('00000000-0000-0000-0000-000000000005', 'task:backup', '{"n": 5}', 'completed', 0, NULL, 'w-2', '2025-01-01 10:00', '2025-01-01 10:01', '2025-01-01 10:02', '2025-01-01 10:03', '2025-01-01 10:03', 2, 3, 'once', NULL),
 ('00000000-0000-0000-0000-000000000006', 'task:none', '{}', 'failed', 0, NULL, 'w-1', '2025-01-01 10:00', NULL, NULL, '2025-01-01 10:03', '2025-01-01 10:03', 0, 3, 'no handler', NULL),
 ('00000000-0000-0000-0000-000000000007', 'task:backup', '{}', 'dead_letter', 0, NULL, 'w-1', '2025-01-01 10:00', '2025-01-01 10:01', '2025-01-01 10:02', '2025-01-01 10:03', '2025-01-01 10:03', 3, 3, 'boom', NULL);
