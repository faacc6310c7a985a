SELECT id FROM th_jobs
WHERE status = 'dlq'
  AND (:after IS NULL OR id > :after)
  AND (:any_id OR id IN :ids)
  AND (:queue IS NULL OR queue = :queue)
  AND (:type IS NULL OR type = :type)
  AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
  AND (:code IS NULL OR dlq_code = :code)
  AND (:error IS NULL OR LOCATE(:error, last_error) > 0 OR LOCATE(:error, dlq_reason) > 0)
  -- ?text  AND (LOCATE(:text, id) > 0 OR LOCATE(:text, type) > 0 OR LOCATE(:text, last_error) > 0
  -- ?text       OR LOCATE(:text, dlq_reason) > 0 OR LOCATE(CAST(:text AS BINARY), payload) > 0)
ORDER BY id LIMIT :limit
