SELECT scope, name, per, concurrency, rate, burst FROM th_limits;
