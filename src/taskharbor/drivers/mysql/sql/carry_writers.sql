-- Had when every transaction that has written to the jobs has ended.
LOCK TABLES th_jobs READ;
