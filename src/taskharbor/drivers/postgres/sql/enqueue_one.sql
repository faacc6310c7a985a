-- One job without a key: a single round trip, with the hint for waiting workers, if there are any, in the same
-- statement. Returns whether there are; nothing, and nothing is inserted, while a move has the store shut.
INSERT INTO th_jobs (id, type, queue, tenant_id, payload, meta, priority, run_at, due_at, expires_at, timeout_nanos,
                     max_attempts, created_at, updated_at)
SELECT :id, :type, :queue, :tenant_id, :payload, :meta, :priority, CAST(:run_at AS timestamptz),
       CAST(:due_at AS timestamptz), CAST(:expires_at AS timestamptz), :timeout_nanos, :max_attempts,
       CAST(:created_at AS timestamptz), CAST(:created_at AS timestamptz)
WHERE NOT EXISTS (SELECT FROM th_queues WHERE name = chr(1) || 'moving' AND paused)
RETURNING (CASE WHEN EXISTS (SELECT FROM th_workers) THEN pg_notify(:channel, :queue) END) IS NOT NULL;
