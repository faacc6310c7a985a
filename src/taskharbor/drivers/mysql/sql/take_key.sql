-- A key whose time is over goes to the newcomer. `expires_at` is set last: the conditions before it need the old one.
INSERT INTO th_keys (dedupe_scope, idempotency_key, job_id, payload_hash, taken_at, taken_by, expires_at)
VALUES (:dedupe_scope, :idempotency_key, :id, :payload_hash, :taken_at, :taken_by, :expires_at)
ON DUPLICATE KEY UPDATE
  job_id = IF(expires_at <= VALUES(taken_at), VALUES(job_id), job_id),
  payload_hash = IF(expires_at <= VALUES(taken_at), VALUES(payload_hash), payload_hash),
  taken_by = IF(expires_at <= VALUES(taken_at), VALUES(taken_by), taken_by),
  expires_at = IF(expires_at <= VALUES(taken_at), VALUES(expires_at), expires_at)
