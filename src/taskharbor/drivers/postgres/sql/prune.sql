WITH gone AS (
  DELETE FROM th_history WHERE job_id = ANY (CAST(:ids AS text[]))
  RETURNING job_id, dedupe_scope, idempotency_key
), freed AS (
  DELETE FROM th_keys k USING gone
  WHERE k.dedupe_scope = gone.dedupe_scope AND k.idempotency_key = gone.idempotency_key AND k.job_id = gone.job_id
)
SELECT count(DISTINCT job_id) FROM gone;
