SELECT convert_from(payload, 'UTF8'), reject_reason FROM th_staged WHERE run = :run AND attempt = ANY (CAST(:attempts AS bigint[])) AND reject_reason IS NOT NULL;
