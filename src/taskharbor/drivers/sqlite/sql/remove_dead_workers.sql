DELETE FROM th_workers WHERE last_heartbeat <= :silent_since RETURNING id;
