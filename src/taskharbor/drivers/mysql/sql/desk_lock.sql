-- One desk at a time judges by limits, and nobody changes a limit meanwhile. The row is never written and always there.
SELECT value FROM th_meta WHERE name = 'store_id' FOR UPDATE
