-- An update that changes nothing: the server then counts no row. IGNORE would also let pass what does not fit.
INSERT INTO th_tokens (id, name, tenant_id, role, secret_hash, created_at, expires_at, revoked_at)
VALUES (:id, :name, :tenant_id, :role, :secret_hash, :created_at, :expires_at, :revoked_at)
ON DUPLICATE KEY UPDATE id = th_tokens.id
