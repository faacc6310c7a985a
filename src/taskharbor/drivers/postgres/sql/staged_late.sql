SELECT id, payload, COALESCE(s.expires_at, CAST(:expires_at AS timestamptz)), idempotency_key FROM th_staged s WHERE s.run = :run AND s.attempt = ANY (CAST(:attempts AS bigint[])) AND s.reject_reason IS NULL
  AND COALESCE(s.expires_at, CAST(:expires_at AS timestamptz)) <= :now;
