INSERT INTO th_tokens (id, name, tenant_id, role, secret_hash, created_at, expires_at, revoked_at)
VALUES (:id, :name, :tenant_id, :role, :secret_hash, :created_at, :expires_at, :revoked_at)
ON CONFLICT (id) DO NOTHING;
