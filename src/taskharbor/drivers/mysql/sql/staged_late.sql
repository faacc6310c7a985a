SELECT s.id, s.payload, COALESCE(s.expires_at, :expires_at), s.idempotency_key FROM th_staged AS s
WHERE s.run = :run AND s.attempt IN :attempts AND s.reject_reason IS NULL AND NOT COALESCE(s.expires_at, :expires_at, '9999-12-31') > :now
