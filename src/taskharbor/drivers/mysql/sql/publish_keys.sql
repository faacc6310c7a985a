-- Take the keys of the staged jobs that are free, or whose time is over, in the order in which everybody takes keys.
-- A row without a key of its own has its content's, which is its id too. `expires_at` is set last: the conditions
-- before it need the old one.
INSERT INTO th_keys (dedupe_scope, idempotency_key, job_id, payload_hash, taken_at, taken_by, expires_at)
SELECT COALESCE(s.dedupe_scope, :dedupe_scope), COALESCE(s.idempotency_key, s.id), s.id, SHA2(s.payload, 256), :now, :taken_by, NULL
FROM th_staged AS s
WHERE s.run = :run AND s.attempt IN :attempts AND s.reject_reason IS NULL AND COALESCE(s.expires_at, :expires_at, '9999-12-31') > :now
ORDER BY 1, 2, s.id
ON DUPLICATE KEY UPDATE
  job_id = IF(th_keys.expires_at <= :now, VALUES(job_id), job_id),
  payload_hash = IF(th_keys.expires_at <= :now, VALUES(payload_hash), payload_hash),
  taken_by = IF(th_keys.expires_at <= :now, VALUES(taken_by), taken_by),
  expires_at = IF(th_keys.expires_at <= :now, NULL, th_keys.expires_at)
