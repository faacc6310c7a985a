INSERT INTO th_queues (name, paused) VALUES (:queue, :paused) ON DUPLICATE KEY UPDATE paused = VALUES(paused)
