-- How many blocks finding the head of a queue reads: a handful, or as many as the dead entries in front of it fill.
EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)
SELECT priority FROM th_jobs WHERE status = 'ready' AND queue = :queue ORDER BY priority DESC, due_at, id LIMIT 1;
