SELECT name, spec, timezone, type, payload, queue, tenant_id, priority, max_attempts, timeout_nanos, meta, overlap, paused,
       next_run_at, last_run_at, last_job_id, updated_at
  FROM th_schedules
 WHERE name = :name;
