WITH gone AS (
  DELETE FROM th_jobs WHERE id = ANY (CAST(:ids AS text[])) RETURNING id, dedupe_scope, idempotency_key
), freed AS (
  DELETE FROM th_keys k USING gone
  WHERE k.dedupe_scope = gone.dedupe_scope AND k.idempotency_key = gone.idempotency_key AND k.job_id = gone.id
)
SELECT count(*) FROM gone;
