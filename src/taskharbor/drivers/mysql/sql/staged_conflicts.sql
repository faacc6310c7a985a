-- Staged jobs whose key belongs to a job with another payload.
SELECT s.id, s.payload, COALESCE(s.idempotency_key, s.id), k.job_id FROM th_staged AS s
JOIN th_keys AS k ON k.dedupe_scope = COALESCE(s.dedupe_scope, :dedupe_scope) AND k.idempotency_key = COALESCE(s.idempotency_key, s.id)
WHERE s.run = :run AND s.attempt IN :attempts AND s.reject_reason IS NULL
  AND k.payload_hash <> SHA2(s.payload, 256) AND COALESCE(s.expires_at, :expires_at, '9999-12-31') > :now
