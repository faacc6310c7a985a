-- The definition is replaced; its life goes on: paused, the last tick, and the next one unless the times changed.
INSERT INTO th_schedules (name, spec, timezone, type, payload, queue, tenant_id, priority, max_attempts, timeout_nanos,
                          meta, overlap, paused, next_run_at, last_run_at, last_job_id, updated_at)
VALUES (:name, :spec, :timezone, :type, :payload, :queue, :tenant_id, :priority, :max_attempts, :timeout_nanos,
        :meta, :overlap, :paused, :next_run_at, :last_run_at, :last_job_id, :updated_at)
ON CONFLICT (name) DO UPDATE
   SET spec = excluded.spec, timezone = excluded.timezone, type = excluded.type, payload = excluded.payload,
       queue = excluded.queue, tenant_id = excluded.tenant_id, priority = excluded.priority,
       max_attempts = excluded.max_attempts, timeout_nanos = excluded.timeout_nanos, meta = excluded.meta,
       overlap = excluded.overlap, updated_at = excluded.updated_at,
       next_run_at = CASE WHEN th_schedules.spec = excluded.spec AND th_schedules.timezone = excluded.timezone
                          THEN th_schedules.next_run_at ELSE excluded.next_run_at END
RETURNING name, spec, timezone, type, payload, queue, tenant_id, priority, max_attempts, timeout_nanos, meta, overlap, paused,
       next_run_at, last_run_at, last_job_id, updated_at;
