-- As if this transaction had written to the jobs: whoever moves the store waits for it, see `carry_writers`.
SELECT id FROM th_jobs WHERE id = '' FOR UPDATE
