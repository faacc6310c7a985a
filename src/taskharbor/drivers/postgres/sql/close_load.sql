UPDATE th_loads SET rows_in = :rows_in, published = :published, duplicates = :duplicates, rejected = :rejected
WHERE run_id = :run_id;
