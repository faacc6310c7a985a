SELECT id, name, tenant_id, role, secret_hash, created_at, expires_at, revoked_at
FROM th_tokens
WHERE id IN :ids
