-- Reading rows is what a claim costs this side, so what most jobs do not have comes in one column, NULL if all is bare,
-- and the numbers come as one text that is the same for most.
SELECT id, type, tenant_id, payload, due_at, created_at,
       CONCAT_WS(',', timeout_nanos, max_attempts, attempts, deliveries, forgiven),
       IF(meta IS NULL AND run_at IS NULL AND expires_at IS NULL AND idempotency_key IS NULL AND failed_at IS NULL
          AND last_error = '',
          NULL,
          JSON_ARRAY(meta, run_at, expires_at, last_error, failed_at, idempotency_key, dedupe_scope))
FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = :rank AND claim_at <= :now
  AND (expires_at IS NULL OR expires_at > :now)
  AND (:any_type OR type IN :types)
ORDER BY claim_at, id LIMIT :limit
FOR UPDATE SKIP LOCKED
