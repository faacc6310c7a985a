SELECT DISTINCT COALESCE(queue, :queue) FROM th_staged WHERE run = :run AND attempt = ANY (CAST(:attempts AS bigint[])) AND reject_reason IS NULL;
