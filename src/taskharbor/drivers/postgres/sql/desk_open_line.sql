INSERT INTO th_fair (queue, priority, tenant_id, tag) VALUES (:queue, :priority, '', 0)
ON CONFLICT (queue, priority, tenant_id) DO NOTHING;
