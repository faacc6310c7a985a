INSERT INTO th_workers AS w (id, hostname, pid, queues, slots, version, meta, started_at, last_heartbeat)
VALUES (:id, :hostname, :pid, :queues, :slots, :version, :meta, COALESCE(:started_at, :now), :now)
ON CONFLICT (id) DO UPDATE
SET hostname = EXCLUDED.hostname, pid = EXCLUDED.pid, queues = EXCLUDED.queues, slots = EXCLUDED.slots,
    version = EXCLUDED.version, meta = EXCLUDED.meta, started_at = COALESCE(:started_at, w.started_at),
    last_heartbeat = EXCLUDED.last_heartbeat;
