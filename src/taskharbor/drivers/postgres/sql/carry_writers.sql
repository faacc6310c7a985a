-- Had when every transaction that has written to the jobs has ended; let go at once.
LOCK TABLE th_jobs IN SHARE MODE;
