-- Staged jobs whose key belongs to a job with another payload.
SELECT s.id, s.payload, s.idempotency_key, k.job_id FROM th_staged s
JOIN th_keys k ON k.dedupe_scope = COALESCE(s.dedupe_scope, :dedupe_scope) AND k.idempotency_key = s.idempotency_key
WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL
  AND k.job_id <> s.id AND k.payload_hash <> encode(sha256(s.payload), 'hex') AND (s.expires_at IS NULL OR s.expires_at > :now);
