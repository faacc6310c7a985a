INSERT INTO th_limits (scope, name, per, concurrency, rate, burst)
VALUES (:scope, :name, :per, :concurrency, :rate, :burst)
ON DUPLICATE KEY UPDATE concurrency = VALUES(concurrency), rate = VALUES(rate), burst = VALUES(burst)
