-- Only the lines of what was asked for are there, so that an index can be found for them. The states are written out,
-- because the indexes are of one state each.
SELECT count(*)
  FROM (SELECT 1
          FROM th_jobs
         WHERE TRUE
           -- ?ready  AND status = 'ready'
           -- ?inflight  AND status = 'inflight'
           -- ?dlq  AND status = 'dlq'
           -- ?ids  AND id = ANY (CAST(:ids AS text[]))
           -- ?queue  AND queue = :queue
           -- ?type  AND type = :type
           -- ?tenant_id  AND tenant_id = :tenant_id
           -- ?code  AND dlq_code = :code
           -- ?error  AND (position(:error IN last_error) > 0 OR position(:error IN dlq_reason) > 0)
           -- ?text  AND (position(:text IN id) > 0 OR position(:text IN type) > 0 OR position(:text IN last_error) > 0
           -- ?text       OR position(:text IN dlq_reason) > 0 OR position(convert_to(:text, 'UTF8') IN payload) > 0)
         LIMIT :limit) AS found;
