INSERT INTO th_limits (scope, name, per, concurrency, rate, burst)
VALUES (:scope, :name, :per, :concurrency, :rate, :burst)
ON CONFLICT (scope, name, per) DO UPDATE
SET concurrency = EXCLUDED.concurrency, rate = EXCLUDED.rate, burst = EXCLUDED.burst;
