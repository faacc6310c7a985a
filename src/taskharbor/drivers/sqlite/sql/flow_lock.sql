SELECT id, name, tenant_id, policy, state, total, done, failed, created_at, ended_at FROM th_workflows WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;
