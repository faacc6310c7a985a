WITH gone AS (
  DELETE FROM th_jobs WHERE id = :id RETURNING id, due_was
)
DELETE FROM th_bench WHERE job_id = ANY (ARRAY(SELECT id FROM gone WHERE due_was IS NOT NULL));
