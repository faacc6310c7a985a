-- `take_key` for a whole batch: returns the ids of the jobs that now hold their keys.
INSERT INTO th_keys AS held (dedupe_scope, idempotency_key, job_id, payload_hash, expires_at)
SELECT * FROM unnest(CAST(:scopes AS text[]), CAST(:keys AS text[]), CAST(:ids AS text[]), CAST(:hashes AS text[]),
                     CAST(:expiries AS timestamptz[]))
ON CONFLICT (dedupe_scope, idempotency_key) DO UPDATE
SET job_id = EXCLUDED.job_id, payload_hash = EXCLUDED.payload_hash, expires_at = EXCLUDED.expires_at
WHERE held.expires_at <= :now
RETURNING job_id;
