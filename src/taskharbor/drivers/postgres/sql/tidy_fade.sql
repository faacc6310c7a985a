DELETE FROM th_fair
WHERE queue = :queue AND priority = :priority AND tenant_id = ANY (CAST(:tenants AS text[]));
