-- Locking, because a plain read in the caller's REPEATABLE READ transaction would not see who came in between.
SELECT job_id, payload_hash, taken_by FROM th_keys
WHERE dedupe_scope = :dedupe_scope AND idempotency_key = :idempotency_key
FOR UPDATE
