-- Whoever publishes a load says so first: of two that try, one waits for the other and then finds it done.
INSERT IGNORE INTO th_loads (run_id, published_at) VALUES (:run_id, :now)
