-- Only the lines of what was asked for are there, so that an index can be found for them. The states are written out,
-- because the indexes are of one state each.
SELECT count(*)
  FROM (SELECT 1
          FROM th_jobs
         WHERE true
           -- ?ready  AND status = 'ready'
           -- ?inflight  AND status = 'inflight'
           -- ?dlq  AND status = 'dlq'
           -- ?queue  AND queue = :queue
           -- ?type  AND type = :type
           -- ?tenant_id  AND tenant_id = :tenant_id
           -- ?code  AND dlq_code = :code
           -- ?error  AND (instr(last_error, :error) > 0 OR instr(coalesce(dlq_reason, ''), :error) > 0)
           -- ?text  AND (instr(id, :text) > 0 OR instr(type, :text) > 0 OR instr(last_error, :text) > 0
           -- ?text       OR instr(coalesce(dlq_reason, ''), :text) > 0 OR instr(payload, CAST(:text AS BLOB)) > 0)
         LIMIT :limit);
