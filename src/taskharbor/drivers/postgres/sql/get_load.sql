SELECT rows_in, published, duplicates, rejected, published_at FROM th_loads WHERE run_id = :run_id;
