SELECT id FROM th_workers WHERE last_heartbeat <= :before FOR UPDATE
