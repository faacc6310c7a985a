INSERT INTO th_fair (queue, priority, tenant_id, tag) VALUES (:queue, :priority, :tenant_id, :tag)
ON CONFLICT (queue, priority, tenant_id) DO UPDATE SET tag = max(tag, excluded.tag);
