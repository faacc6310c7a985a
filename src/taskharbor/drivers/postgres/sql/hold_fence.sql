-- As if this transaction had written to the jobs: whoever moves the store waits for it, see `carry_writers`.
LOCK TABLE th_jobs IN ROW EXCLUSIVE MODE;
