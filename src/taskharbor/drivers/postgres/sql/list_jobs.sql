-- Both halves of the view are read from their newest id down, so a page costs what it shows.
SELECT * FROM th_all_jobs
WHERE id < :cursor
  AND (CAST(:status AS text) IS NULL OR status = :status)
  AND (CAST(:queue AS text) IS NULL OR queue = :queue)
  AND (CAST(:type AS text) IS NULL OR type = :type)
  AND (CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id)
  AND (CAST(:code AS text) IS NULL OR dlq_code = :code)
  AND (CAST(:error AS text) IS NULL OR position(:error IN last_error) > 0 OR position(:error IN dlq_reason) > 0)
  -- ?text  AND (position(:text IN id) > 0 OR position(:text IN type) > 0 OR position(:text IN last_error) > 0
  -- ?text       OR position(:text IN dlq_reason) > 0 OR position(convert_to(:text, 'UTF8') IN payload) > 0)
ORDER BY id DESC
LIMIT :limit;
