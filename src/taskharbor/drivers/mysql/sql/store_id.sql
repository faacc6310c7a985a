SELECT value FROM th_meta WHERE name = 'store_id'
