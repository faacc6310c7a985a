SELECT id, hostname, pid, queues, slots, version, started_at, last_heartbeat, meta FROM th_workers ORDER BY id;
