-- The hint for waiting workers, if there are any.
SELECT pg_notify(:channel, queue) FROM unnest(CAST(:queues AS text[])) AS u (queue)
WHERE EXISTS (SELECT FROM th_workers);
