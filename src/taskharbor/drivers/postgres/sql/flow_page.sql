SELECT id, name, tenant_id, policy, state, total, done, failed, created_at, ended_at FROM th_workflows WHERE CAST(:before AS text) IS NULL OR id < CAST(:before AS text)
ORDER BY id DESC LIMIT :most;
