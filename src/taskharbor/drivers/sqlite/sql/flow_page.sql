SELECT id, name, tenant_id, policy, state, total, done, failed, created_at, ended_at FROM th_workflows WHERE :before IS NULL OR id < :before
ORDER BY id DESC LIMIT :most;
