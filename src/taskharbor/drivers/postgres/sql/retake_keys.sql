-- Keys whose time is over go to the newcomers.
UPDATE th_keys k SET job_id = s.id, payload_hash = encode(sha256(s.payload), 'hex'), expires_at = NULL
FROM th_staged s
WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL
  AND k.dedupe_scope = COALESCE(s.dedupe_scope, :dedupe_scope) AND k.idempotency_key = s.idempotency_key
  AND k.expires_at <= :now AND (s.expires_at IS NULL OR s.expires_at > :now);
