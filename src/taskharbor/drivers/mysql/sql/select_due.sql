-- Reading columns is most of what a claim costs on this side. So what the jobs of a batch have in common comes as one
-- text, which needs to be taken apart only once (no name contains a NUL), and what most jobs do not have comes as another
-- that is NULL then.
SELECT id, payload,
       CONCAT_WS(CHAR(0 USING utf8mb4), type, tenant_id, COALESCE(due_was, due_at), created_at, timeout_nanos, max_attempts, attempts,
                 deliveries, forgiven),
       IF(meta IS NULL AND run_at IS NULL AND expires_at IS NULL AND idempotency_key IS NULL AND failed_at IS NULL
          AND last_error = '' AND due_was IS NULL,
          NULL,
          JSON_ARRAY(meta, run_at, expires_at, last_error, failed_at, idempotency_key, dedupe_scope,
                     IF(due_was IS NULL, NULL, due_at)))
FROM th_jobs FORCE INDEX (th_jobs_claim)
WHERE status = 'ready' AND queue = :queue AND claim_rank = :rank AND claim_at <= :now
  AND (expires_at IS NULL OR expires_at > :now)
  AND (:any_type OR type IN :types)
  -- ?tenant  AND tenant_id = :tenant
ORDER BY claim_at, id LIMIT :limit
FOR UPDATE SKIP LOCKED
