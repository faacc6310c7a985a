-- Back to the places in line that they had. All parts see the bench as it was before.
WITH chosen AS MATERIALIZED (
  SELECT first.job_id, first.bucket
  FROM unnest(CAST(:buckets AS text[]), CAST(:counts AS int[])) AS item (bucket, most)
  CROSS JOIN LATERAL (
    SELECT b.job_id, b.bucket FROM th_bench b WHERE b.bucket = item.bucket
      AND COALESCE((SELECT j.status <> 'ready' OR (j.queue = ANY (CAST(:queues AS text[]))
                      AND (CAST(:types AS text[]) IS NULL OR j.type = ANY (CAST(:types AS text[])))
                      AND (CAST(:tenant AS text) IS NULL OR j.tenant_id = CAST(:tenant AS text)))
                    FROM th_jobs j WHERE j.id = b.job_id), true)
    ORDER BY b.priority DESC, b.position, b.job_id
    LIMIT item.most
  ) first
), struck AS (
  DELETE FROM th_bench WHERE job_id = ANY (ARRAY(SELECT job_id FROM chosen))
), back AS (
  UPDATE th_jobs j
  SET due_at = (SELECT b.position FROM th_bench b WHERE b.job_id = j.id),
      due_was = CASE WHEN (SELECT b.position FROM th_bench b WHERE b.job_id = j.id) <> j.due_was THEN j.due_was END
  WHERE j.id = ANY (ARRAY(SELECT job_id FROM chosen)) AND j.status = 'ready' AND j.due_at = '9999-01-01Z'
  RETURNING j.id
)
SELECT chosen.bucket, count(*), count(back.id) FROM chosen LEFT JOIN back ON back.id = chosen.job_id
GROUP BY chosen.bucket;
