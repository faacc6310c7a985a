UPDATE th_keys SET job_id = :id, payload_hash = :payload_hash, expires_at = :key_expires_at
 WHERE dedupe_scope = :dedupe_scope AND idempotency_key = :idempotency_key;
