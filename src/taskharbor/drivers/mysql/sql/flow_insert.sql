INSERT INTO th_workflows (id, name, tenant_id, policy, state, total, done, failed, created_at, compensation)
VALUES (:id, :name, :tenant_id, :policy, :state, :total, 0, 0, :created_at, :compensation)
