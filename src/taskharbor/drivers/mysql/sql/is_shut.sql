-- A row exactly if a move has shut this store.
SELECT 1 FROM th_queues WHERE name = CONCAT(CHAR(1 USING utf8mb4), 'moving') AND paused
