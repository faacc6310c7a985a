INSERT INTO th_workers (id, hostname, pid, queues, slots, version, started_at, last_heartbeat, meta)
VALUES (:id, :hostname, :pid, :queues, :slots, :version, coalesce(:started_at, :now), :now, :meta)
ON CONFLICT (id) DO UPDATE
   SET hostname = excluded.hostname, pid = excluded.pid, queues = excluded.queues, slots = excluded.slots,
       version = excluded.version, started_at = coalesce(:started_at, started_at), last_heartbeat = :now,
       meta = excluded.meta;
