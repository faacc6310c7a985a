-- The same of jobs that are over.
SELECT COUNT(*) FROM (
  SELECT 1 FROM th_history
  WHERE final = 1
    -- ?status  AND status = :status
    -- ?ids  AND job_id IN :ids
    -- ?queue  AND queue = :queue
    -- ?type  AND type = :type
    -- ?tenant_id  AND tenant_id = :tenant_id
    -- ?error  AND LOCATE(:error, last_error) > 0
    -- ?text  AND (LOCATE(:text, job_id) > 0 OR LOCATE(:text, type) > 0 OR LOCATE(:text, last_error) > 0
    -- ?text       OR LOCATE(CAST(:text AS BINARY), payload) > 0)
  LIMIT :limit
) AS found
