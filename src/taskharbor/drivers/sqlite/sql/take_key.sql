-- Gives a row exactly if the key was free, or its time was up, and now belongs to this job.
INSERT INTO th_keys (dedupe_scope, idempotency_key, job_id, payload_hash, expires_at)
VALUES (:dedupe_scope, :idempotency_key, :id, :payload_hash, :key_expires_at)
ON CONFLICT (dedupe_scope, idempotency_key) DO UPDATE
   SET job_id = excluded.job_id, payload_hash = excluded.payload_hash, expires_at = excluded.expires_at
 WHERE th_keys.expires_at <= :created_at
RETURNING job_id;
