SELECT value FROM th_meta WHERE key = 'store_id';
