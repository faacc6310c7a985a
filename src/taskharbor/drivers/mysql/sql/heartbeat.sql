INSERT INTO th_workers (id, hostname, pid, queues, slots, version, meta, started_at, last_heartbeat)
VALUES (:id, :hostname, :pid, :queues, :slots, :version, :meta, COALESCE(:started_at, :now), :now)
ON DUPLICATE KEY UPDATE
  hostname = VALUES(hostname),
  pid = VALUES(pid),
  queues = VALUES(queues),
  slots = VALUES(slots),
  version = VALUES(version),
  meta = VALUES(meta),
  started_at = COALESCE(:started_at, started_at),
  last_heartbeat = VALUES(last_heartbeat)
