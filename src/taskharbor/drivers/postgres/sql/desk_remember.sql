INSERT INTO th_fair AS f (queue, priority, tenant_id, tag)
SELECT CAST(:queue AS text), CAST(:priority AS int), tenant_id, tag
FROM unnest(CAST(:tenants AS text[]), CAST(:tags AS bigint[])) AS item (tenant_id, tag)
ON CONFLICT (queue, priority, tenant_id) DO UPDATE SET tag = GREATEST(f.tag, EXCLUDED.tag);
