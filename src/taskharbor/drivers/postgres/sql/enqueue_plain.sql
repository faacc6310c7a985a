-- A job that has nothing to it but its payload and the fields that every job has, while nobody listens: each value
-- that need not be sent makes it quicker.
INSERT INTO th_jobs (id, type, queue, tenant_id, payload, priority, max_attempts, due_at, created_at, updated_at)
VALUES (:id, :type, :queue, :tenant_id, :payload, :priority, :max_attempts, :now, :now, :now);
