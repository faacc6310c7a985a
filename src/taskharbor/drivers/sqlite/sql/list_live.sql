SELECT id, type, queue, tenant_id, payload, meta, priority, run_at, coalesce(due_was, due_at), expires_at, timeout_nanos, max_attempts,
       attempts, deliveries, forgiven, last_error, failed_at, status, lease_token, lease_owner, lease_expires_at,
       cancel_requested_at, dlq_reason, dlq_code, dlq_failed_at, idempotency_key, dedupe_scope, progress, created_at,
       updated_at, claimed_at, started_at
  FROM th_jobs
 WHERE id < :before
   AND (:status IS NULL OR status = :status)
   AND (:queue IS NULL OR queue = :queue)
   AND (:type IS NULL OR type = :type)
   AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
   AND (:code IS NULL OR dlq_code = :code)
   AND (:error IS NULL OR instr(last_error, :error) > 0 OR instr(coalesce(dlq_reason, ''), :error) > 0)
   -- ?text  AND (instr(id, :text) > 0 OR instr(type, :text) > 0 OR instr(last_error, :text) > 0
   -- ?text       OR instr(coalesce(dlq_reason, ''), :text) > 0 OR instr(payload, CAST(:text AS BLOB)) > 0)
 ORDER BY id DESC
 LIMIT :limit;
