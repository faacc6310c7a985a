-- A job that has nothing to it but its payload and the fields that every job has, while nobody listens: each value
-- that need not be sent makes it quicker. Nothing is inserted while a move has the store shut: the table is locked
-- before this statement takes its snapshot, so that the move either is seen here or waits for the end of this.
INSERT INTO th_jobs (id, type, queue, tenant_id, payload, priority, max_attempts, due_at, created_at, updated_at)
SELECT :id, :type, :queue, :tenant_id, :payload, :priority, :max_attempts, CAST(:now AS timestamptz),
       CAST(:now AS timestamptz), CAST(:now AS timestamptz)
WHERE NOT EXISTS (SELECT FROM th_queues WHERE name = chr(1) || 'moving' AND paused);
