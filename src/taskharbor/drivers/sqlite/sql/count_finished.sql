-- The same of jobs that are over. Every final row has a state other than ready; saying so opens the index.
SELECT count(*)
  FROM (SELECT 1
          FROM th_history
         WHERE final = 1 AND status <> 'ready'
           -- ?status  AND status = :status
           -- ?queue  AND queue = :queue
           -- ?type  AND type = :type
           -- ?tenant_id  AND tenant_id = :tenant_id
           -- ?error  AND instr(coalesce(last_error, ''), :error) > 0
           -- ?text  AND (instr(job_id, :text) > 0 OR instr(type, :text) > 0 OR instr(coalesce(last_error, ''), :text) > 0
           -- ?text       OR instr(payload, CAST(:text AS BLOB)) > 0)
         LIMIT :limit);
