-- One job without a key: a single round trip, with the hint for waiting workers, if there are any, in the same
-- statement. Returns whether there are.
INSERT INTO th_jobs (id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
                     max_attempts, created_at, updated_at)
VALUES (:id, :type, :queue, :tenant_id, :payload, :meta, :priority, :run_at, :due_at, :expires_at, :timeout_nanos,
        :max_attempts, :created_at, :created_at)
RETURNING (CASE WHEN EXISTS (SELECT FROM th_workers) THEN pg_notify(:channel, :queue) END) IS NOT NULL;
