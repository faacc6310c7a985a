DELETE held FROM th_jobs AS job FORCE INDEX (PRIMARY)
STRAIGHT_JOIN th_keys AS held FORCE INDEX (PRIMARY)
  ON held.dedupe_scope = job.dedupe_scope AND held.idempotency_key = job.idempotency_key AND held.job_id = job.id
WHERE job.id IN :ids
