SELECT id, name, tenant_id, policy, state, total, done, failed, created_at, ended_at FROM th_workflows WHERE id = ANY (CAST(:ids AS text[])) ORDER BY id FOR UPDATE;
