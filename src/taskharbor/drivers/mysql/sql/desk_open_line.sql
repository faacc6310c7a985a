INSERT IGNORE INTO th_fair (queue, priority, tenant_id, tag) VALUES (:queue, :priority, '', 0)
