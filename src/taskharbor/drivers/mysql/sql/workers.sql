SELECT id, hostname, pid, queues, slots, version, meta, started_at, last_heartbeat FROM th_workers ORDER BY id
