-- These live jobs with their true due time, and behind that what says where they stand in line or on a bench.
SELECT j.id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, j.run_at, coalesce(j.due_was, j.due_at),
       j.expires_at, j.timeout_nanos, j.max_attempts, j.attempts, j.deliveries, j.forgiven, j.last_error, j.failed_at,
       j.status, j.lease_token, j.lease_owner, j.lease_expires_at, j.cancel_requested_at, j.dlq_reason, j.dlq_code,
       j.dlq_failed_at, j.idempotency_key, j.dedupe_scope, CAST(NULL AS bytea), j.progress, j.created_at, j.updated_at, j.claimed_at,
       j.started_at, j.dlq_failed_at, j.due_at, j.due_was, b.bucket, b.position
FROM th_jobs j LEFT JOIN th_bench b ON b.job_id = j.id
WHERE j.id = ANY (CAST(:ids AS text[]))
ORDER BY j.id;
