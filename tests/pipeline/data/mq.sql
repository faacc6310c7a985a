-- Seed 002 for PostgreSQL and MySQL; what differs stands in angle brackets.
CREATE TABLE mq_tasks (
  id VARCHAR(64) PRIMARY KEY, topic VARCHAR(255) NOT NULL, tenant_id VARCHAR(64) NOT NULL, payload <blob> NOT NULL,
  meta TEXT NULL, priority INT NOT NULL DEFAULT 20, dedupe_key VARCHAR(128) NULL, status VARCHAR(16) NOT NULL,
  attempts INT NOT NULL DEFAULT 0, max_attempts INT NOT NULL DEFAULT 5, available_at <time> NOT NULL,
  lease_owner VARCHAR(64) NULL, lease_until <null_time>, expires_at <null_time>, last_error TEXT NULL,
  last_error_at <null_time>, created_at <time> NOT NULL, updated_at <time> NOT NULL);
CREATE TABLE mq_task_dlq (
  id <serial>, task_id VARCHAR(64) NOT NULL, topic VARCHAR(255) NOT NULL, tenant_id VARCHAR(64) NOT NULL,
  payload <blob> NOT NULL, meta TEXT NULL, reason TEXT NOT NULL, failed_at <time> NOT NULL);
CREATE TABLE mq_task_attempts (
  id <serial>, task_id VARCHAR(64) NOT NULL, attempt_no INT NOT NULL, reason TEXT NULL, started_at <time> NOT NULL,
  finished_at <null_time>, success BOOLEAN NOT NULL DEFAULT FALSE);
CREATE INDEX idx_mq_tasks_ready ON mq_tasks (status, available_at, priority, created_at);
CREATE INDEX idx_mq_tasks_lease ON mq_tasks (lease_until, lease_owner);
CREATE INDEX idx_mq_tasks_tenant_topic ON mq_tasks (tenant_id, topic);
CREATE UNIQUE INDEX uq_mq_tasks_dedupe ON mq_tasks (tenant_id, dedupe_key);
INSERT INTO mq_tasks (id, topic, tenant_id, payload, meta, priority, dedupe_key, status, attempts, max_attempts,
  available_at, lease_owner, lease_until, expires_at, last_error, last_error_at, created_at, updated_at) VALUES
 ('mq-queued', 'mail', 'acme', '{"n":1}', '{"a":"b","c":1}', 30, 'd1', 'queued', 0, 5, '2025-01-01 10:00:00', NULL, NULL, NULL, NULL, NULL, '2025-01-01 10:00:00', '2025-01-01 10:00:00'),
 ('mq-other', 'sms', 'beta', '{"n":2}', NULL, 20, 'd1', 'queued', 1, 5, '2025-01-01 11:00:00', NULL, NULL, '2037-01-01 00:00:00', 'slow', '2025-01-01 10:30:00', '2025-01-01 10:00:00', '2025-01-01 10:30:00'),
 ('mq-late', 'mail', 'acme', '{"n":3}', NULL, 20, NULL, 'queued', 0, 5, '2025-01-01 10:00:00', NULL, NULL, '2025-01-02 00:00:00', NULL, NULL, '2025-01-01 10:00:00', '2025-01-01 10:00:00'),
 ('mq-leased', 'mail', 'acme', '{"n":4}', NULL, 20, NULL, 'leased', 2, 5, '2025-01-01 10:00:00', 'w-1', '2025-01-01 12:00:00', NULL, 'x', '2025-01-01 11:00:00', '2025-01-01 10:00:00', '2025-01-01 11:59:00'),
 ('mq-done', 'mail', 'acme', '{"n":5}', NULL, 20, NULL, 'done', 2, 5, '2025-01-01 10:00:00', NULL, NULL, NULL, 'once', '2025-01-01 10:01:00', '2025-01-01 10:00:00', '2025-01-01 10:05:00'),
 ('mq-dead', 'mail', 'acme', '{"n":6}', 'no json', 20, NULL, 'dead', 2, 2, '2025-01-01 10:00:00', NULL, NULL, NULL, 'boom', '2025-01-01 10:06:00', '2025-01-01 10:00:00', '2025-01-01 10:06:00'),
 ('mq-expired', 'mail', 'acme', '{"n":7}', NULL, 20, NULL, 'expired', 0, 5, '2025-01-01 10:00:00', NULL, NULL, '2025-01-01 10:10:00', NULL, NULL, '2025-01-01 10:00:00', '2025-01-01 10:11:00'),
 ('mq-cancelled', 'mail', 'acme', '{"n":8}', NULL, 20, NULL, 'cancelled', 0, 5, '2025-01-01 10:00:00', NULL, NULL, NULL, NULL, NULL, '2025-01-01 10:00:00', '2025-01-01 10:12:00'),
 ('mq-odd', 'mail', 'acme', '{"n":9}', NULL, 20, NULL, 'mystery', 0, 5, '2025-01-01 10:00:00', NULL, NULL, NULL, NULL, NULL, '2025-01-01 10:00:00', '2025-01-01 10:00:00');
INSERT INTO mq_task_dlq (task_id, topic, tenant_id, payload, meta, reason, failed_at) VALUES
 ('mq-dead', 'mail', 'acme', '{"n":6}', NULL, 'first death', '2025-01-01 10:02:00'),
 ('mq-dead', 'mail', 'acme', '{"n":6}', NULL, 'boom for good', '2025-01-01 10:06:00'),
 ('mq-gone', 'sms', 'beta', '{"n":0}', NULL, 'long dead', '2025-01-01 09:00:00');
INSERT INTO mq_task_attempts (task_id, attempt_no, reason, started_at, finished_at, success) VALUES
 ('mq-done', 1, 'once', '2025-01-01 10:00:30', '2025-01-01 10:01:00', FALSE),
 ('mq-done', 2, NULL, '2025-01-01 10:04:00', '2025-01-01 10:05:00', TRUE),
 ('mq-dead', 1, 'ouch', '2025-01-01 10:00:30', '2025-01-01 10:01:00', FALSE),
 ('mq-dead', 2, 'boom', '2025-01-01 10:05:30', '2025-01-01 10:06:00', FALSE),
 ('mq-leased', 1, 'x', '2025-01-01 10:59:00', '2025-01-01 11:00:00', FALSE),
 ('mq-leased', 2, NULL, '2025-01-01 11:59:00', NULL, FALSE),
 ('mq-nowhere', 1, 'lost', '2025-01-01 10:00:30', '2025-01-01 10:01:00', FALSE),
 ('mq-nowhere', 2, NULL, '2025-01-01 10:04:00', '2025-01-01 10:05:00', TRUE)
