-- How long this transaction waits for a lock.
SELECT set_config('lock_timeout', :wait, true);
