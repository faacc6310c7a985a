DELETE held FROM th_history AS ended FORCE INDEX (th_history_job)
STRAIGHT_JOIN th_keys AS held FORCE INDEX (PRIMARY)
  ON held.dedupe_scope = ended.dedupe_scope AND held.idempotency_key = ended.idempotency_key
  AND held.job_id = ended.job_id
WHERE ended.job_id IN :ids AND ended.final = 1
