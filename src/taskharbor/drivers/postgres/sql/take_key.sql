-- Returns a row exactly if the key was free, or had outlived its time, and now belongs to :id.
INSERT INTO th_keys AS held (dedupe_scope, idempotency_key, job_id, payload_hash, expires_at)
VALUES (:dedupe_scope, :idempotency_key, :id, :payload_hash, :key_expires_at)
ON CONFLICT (dedupe_scope, idempotency_key) DO UPDATE
SET job_id = EXCLUDED.job_id, payload_hash = EXCLUDED.payload_hash, expires_at = EXCLUDED.expires_at
WHERE held.expires_at <= :created_at
RETURNING job_id;
