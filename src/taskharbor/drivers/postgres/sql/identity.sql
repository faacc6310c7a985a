SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT value FROM th_meta WHERE key = 'store_id');
