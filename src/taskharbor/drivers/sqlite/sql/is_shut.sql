-- A row exactly if a move has shut this store.
SELECT 1 FROM th_queues WHERE name = char(1) || 'moving' AND paused = 1;
