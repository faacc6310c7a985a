-- The hint for waiting workers, if there are any; and, because it is run when the jobs have been written, whether a move
-- has shut the store, and whether this transaction could see that.
SELECT EXISTS (SELECT FROM th_queues WHERE name = chr(1) || 'moving' AND paused),
       current_setting('transaction_isolation') = 'read committed',
       (SELECT count(pg_notify(:channel, queue)) FROM unnest(CAST(:queues AS text[])) AS u (queue)
        WHERE EXISTS (SELECT FROM th_workers));
