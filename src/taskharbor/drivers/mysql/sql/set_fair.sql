INSERT INTO th_queues (name, fair, weights) VALUES (:queue, :fair, :weights)
ON DUPLICATE KEY UPDATE fair = VALUES(fair), weights = VALUES(weights)
