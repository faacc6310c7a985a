-- How many of the staged jobs without a key are there already, live or finished.
SELECT (SELECT count(*) FROM th_staged s JOIN th_jobs j ON j.id = s.id
        WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL AND s.idempotency_key IS NULL)
     + (SELECT count(*) FROM th_staged s JOIN th_history h ON h.job_id = s.id AND h.final
        WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL AND s.idempotency_key IS NULL);
