DELETE FROM th_fair WHERE queue = :queue AND priority = :priority AND tenant_id = :tenant_id;
