-- One job with a key: inserted only if the key could be taken, and no move has shut the store. Returns a row exactly
-- then.
WITH taken AS (
  INSERT INTO th_keys AS held (dedupe_scope, idempotency_key, job_id, payload_hash, expires_at)
  SELECT :dedupe_scope, :idempotency_key, :id, :payload_hash, CAST(:key_expires_at AS timestamptz)
  WHERE NOT EXISTS (SELECT FROM th_queues WHERE name = chr(1) || 'moving' AND paused)
  ON CONFLICT (dedupe_scope, idempotency_key) DO UPDATE
  SET job_id = EXCLUDED.job_id, payload_hash = EXCLUDED.payload_hash, expires_at = EXCLUDED.expires_at
  WHERE held.expires_at <= :created_at
  RETURNING job_id
), job AS (
  INSERT INTO th_jobs (id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
                       max_attempts, created_at, updated_at, idempotency_key, dedupe_scope)
  SELECT :id, :type, :queue, :tenant_id, :payload, :meta, :priority, CAST(:run_at AS timestamptz),
         CAST(:due_at AS timestamptz), CAST(:expires_at AS timestamptz), :timeout_nanos, :max_attempts,
         CAST(:created_at AS timestamptz), CAST(:created_at AS timestamptz), :idempotency_key, :dedupe_scope
  FROM taken
)
SELECT (SELECT pg_notify(:channel, :queue) WHERE EXISTS (SELECT FROM th_workers)) FROM taken;
