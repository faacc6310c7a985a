SELECT tenant_id, tag FROM th_fair FORCE INDEX (PRIMARY)
WHERE queue = :queue AND priority = :priority AND tenant_id > :after
ORDER BY tenant_id
LIMIT :most
