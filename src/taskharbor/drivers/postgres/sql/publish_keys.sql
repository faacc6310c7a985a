-- Take the keys of the staged jobs that are free, in the order in which everybody takes keys. Those that will not be
-- published, because they expire, take none.
INSERT INTO th_keys (dedupe_scope, idempotency_key, job_id, payload_hash)
SELECT COALESCE(dedupe_scope, :dedupe_scope), idempotency_key, id, encode(sha256(payload), 'hex')
FROM th_staged
WHERE run = :run AND attempt = ANY (CAST(:attempts AS bigint[])) AND reject_reason IS NULL AND idempotency_key IS NOT NULL
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY 1, 2, id
ON CONFLICT DO NOTHING;
