SELECT job_id, payload_hash FROM th_keys WHERE dedupe_scope = :dedupe_scope AND idempotency_key = :idempotency_key
  AND (expires_at IS NULL OR expires_at > :created_at);
