-- Rows below the oldest transaction still running can no longer be joined by others: the order is settled there.
-- `place` has a name of its own, because ORDER BY xid would else mean that column, and sort all there is.
SELECT CAST(CAST(xid AS text) AS bigint) AS place, seq, job_id, type, queue, tenant_id, priority, outcome, status, at,
       attempt_no, delivery, error, code, encode(lease_token, 'hex'), lease_owner, due_at, claimed_at, started_at,
       payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
       cancel_requested_at, idempotency_key, dedupe_scope, result, progress, created_at
FROM th_history
WHERE (xid, seq) > (CAST(CAST(:xid AS text) AS xid8), :seq) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid, seq
LIMIT :limit;
