-- How long this session waits for tables.
SET SESSION lock_wait_timeout = :wait;
