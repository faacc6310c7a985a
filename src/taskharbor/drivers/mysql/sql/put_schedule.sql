-- Assignments here see those before them: what compares with the old definition comes first.
INSERT INTO th_schedules (name, spec, timezone, type, payload, queue, tenant_id, priority, max_attempts, timeout_nanos,
                          meta, overlap, paused, next_run_at, last_run_at, last_job_id, updated_at)
VALUES (:name, :spec, :timezone, :type, :payload, :queue, :tenant_id, :priority, :max_attempts, :timeout_nanos,
        :meta, :overlap, :paused, :next_run_at, :last_run_at, :last_job_id, :updated_at)
ON DUPLICATE KEY UPDATE
  next_run_at = IF(spec = VALUES(spec) AND timezone = VALUES(timezone), next_run_at, VALUES(next_run_at)),
  spec = VALUES(spec),
  timezone = VALUES(timezone),
  type = VALUES(type),
  payload = VALUES(payload),
  queue = VALUES(queue),
  tenant_id = VALUES(tenant_id),
  priority = VALUES(priority),
  max_attempts = VALUES(max_attempts),
  timeout_nanos = VALUES(timeout_nanos),
  meta = VALUES(meta),
  overlap = VALUES(overlap),
  updated_at = VALUES(updated_at)
