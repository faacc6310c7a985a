-- `get_key`, and nobody else takes or moves the key until the transaction ends.
SELECT job_id, payload_hash FROM th_keys
WHERE dedupe_scope = :dedupe_scope AND idempotency_key = :idempotency_key
FOR UPDATE;
