SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, COALESCE(due_was, due_at), expires_at, timeout_nanos, max_attempts,
       attempts, deliveries, forgiven, last_error, failed_at, status, lease_token, lease_owner, lease_expires_at,
       cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key, dedupe_scope, progress, created_at,
       updated_at, claimed_at, started_at
FROM th_jobs
WHERE (:before IS NULL OR id < :before)
  AND (:any_id OR id IN :ids)
  AND (:status IS NULL OR status = :status)
  AND (:queue IS NULL OR queue = :queue)
  AND (:type IS NULL OR type = :type)
  AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
  AND (:code IS NULL OR dlq_code = :code)
  AND (:error IS NULL OR LOCATE(:error, last_error) > 0 OR LOCATE(:error, dlq_reason) > 0)
  -- ?text  AND (LOCATE(:text, id) > 0 OR LOCATE(:text, type) > 0 OR LOCATE(:text, last_error) > 0
  -- ?text       OR LOCATE(:text, dlq_reason) > 0 OR LOCATE(CAST(:text AS BINARY), payload) > 0)
ORDER BY id DESC LIMIT :limit
