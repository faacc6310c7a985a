-- Only the lines of what was asked for are there, so that an index can be found for them.
SELECT COUNT(*) FROM (
  SELECT 1 FROM th_jobs
  WHERE TRUE
    -- ?status  AND status = :status
    -- ?ids  AND id IN :ids
    -- ?queue  AND queue = :queue
    -- ?type  AND type = :type
    -- ?tenant_id  AND tenant_id = :tenant_id
    -- ?code  AND dlq_code = :code
    -- ?error  AND (LOCATE(:error, last_error) > 0 OR LOCATE(:error, dlq_reason) > 0)
    -- ?text  AND (LOCATE(:text, id) > 0 OR LOCATE(:text, type) > 0 OR LOCATE(:text, last_error) > 0
    -- ?text       OR LOCATE(:text, dlq_reason) > 0 OR LOCATE(CAST(:text AS BINARY), payload) > 0)
  LIMIT :limit
) AS found
