-- The same of jobs that are over.
SELECT count(*)
  FROM (SELECT 1
          FROM th_history
         WHERE final
           -- ?status  AND status = :status
           -- ?ids  AND job_id = ANY (CAST(:ids AS text[]))
           -- ?queue  AND queue = :queue
           -- ?type  AND type = :type
           -- ?tenant_id  AND tenant_id = :tenant_id
           -- ?error  AND position(:error IN last_error) > 0
           -- ?text  AND (position(:text IN job_id) > 0 OR position(:text IN type) > 0 OR position(:text IN last_error) > 0
           -- ?text       OR position(convert_to(:text, 'UTF8') IN payload) > 0)
         LIMIT :limit) AS found;
