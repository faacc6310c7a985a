SELECT seq, job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
       lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
       max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
       result, progress, created_at
FROM th_history
WHERE final = 1
  AND (:before IS NULL OR job_id < :before)
  AND (:any_id OR job_id IN :ids)
  AND (:status IS NULL OR status = :status)
  AND (:queue IS NULL OR queue = :queue)
  AND (:type IS NULL OR type = :type)
  AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
  AND (:error IS NULL OR LOCATE(:error, last_error) > 0)
  -- ?text  AND (LOCATE(:text, job_id) > 0 OR LOCATE(:text, type) > 0 OR LOCATE(:text, last_error) > 0
  -- ?text       OR LOCATE(CAST(:text AS BINARY), payload) > 0)
ORDER BY job_id DESC LIMIT :limit
