INSERT INTO th_queues (name, fair, weights) VALUES (:name, :fair, :weights)
ON CONFLICT (name) DO UPDATE SET fair = EXCLUDED.fair, weights = EXCLUDED.weights;
