-- `get_key`; whoever writes has the file for itself anyway.
SELECT job_id, payload_hash FROM th_keys WHERE dedupe_scope = :dedupe_scope AND idempotency_key = :idempotency_key;
