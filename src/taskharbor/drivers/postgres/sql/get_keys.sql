SELECT k.dedupe_scope, k.idempotency_key, k.job_id, k.payload_hash
FROM unnest(CAST(:scopes AS text[]), CAST(:keys AS text[])) AS wanted (scope, key)
JOIN th_keys k ON k.dedupe_scope = wanted.scope AND k.idempotency_key = wanted.key;
