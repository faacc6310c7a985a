-- As long as any other session again.
SET SESSION lock_wait_timeout = DEFAULT;
