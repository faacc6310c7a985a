INSERT INTO th_jobs (id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
                     max_attempts, created_at, updated_at)
SELECT item.new_id, j.type, j.queue, j.tenant_id, j.payload, j.meta, j.priority, item.run_at,
       COALESCE(item.run_at, :now), j.expires_at, j.timeout_nanos, j.max_attempts, :now, :now
FROM unnest(CAST(:ids AS text[]), CAST(:new_ids AS text[]), CAST(:run_ats AS timestamptz[]))
  AS item (id, new_id, run_at)
JOIN th_jobs j ON j.id = item.id;
