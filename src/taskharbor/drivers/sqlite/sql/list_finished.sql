SELECT seq, job_id, type, queue, tenant_id, priority, outcome, status, at, attempt_no, delivery, error, code,
       lease_token, lease_owner, due_at, claimed_at, started_at, payload, meta, run_at, expires_at, timeout_nanos,
       max_attempts, attempts, forgiven, last_error, failed_at, cancel_requested_at, idempotency_key, dedupe_scope,
       result, progress, created_at
  FROM th_history INDEXED BY th_history_jobs
 WHERE final = 1 AND job_id < :before
   AND (:status IS NULL OR status = :status)
   AND (:queue IS NULL OR queue = :queue)
   AND (:type IS NULL OR type = :type)
   AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
   AND (:error IS NULL OR instr(coalesce(last_error, ''), :error) > 0)
   -- ?text  AND (instr(job_id, :text) > 0 OR instr(type, :text) > 0 OR instr(coalesce(last_error, ''), :text) > 0
   -- ?text       OR instr(payload, CAST(:text AS BLOB)) > 0)
 ORDER BY job_id DESC
 LIMIT :limit;
