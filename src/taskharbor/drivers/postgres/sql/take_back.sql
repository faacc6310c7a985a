-- Leases that ended without a settle. The job is ready again from the moment its lease ended, unless it was to be
-- cancelled, or has gone through more deliveries than its attempts and the crash allowance explain.
WITH lapsed AS MATERIALIZED (
  SELECT j.*, COALESCE(j.started_at, j.claimed_at) AS start,
         CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
              WHEN j.deliveries - j.forgiven >= j.max_attempts + :allowance THEN 'dlq'
              ELSE 'ready' END AS next
  FROM th_jobs j
  WHERE j.status = 'inflight' AND j.queue = ANY (CAST(:queues AS text[])) AND j.lease_expires_at <= :now
    AND (CAST(:owners AS text[]) IS NULL OR j.lease_owner = ANY (CAST(:owners AS text[])))
  ORDER BY j.lease_expires_at
  LIMIT :sweep
  FOR UPDATE OF j SKIP LOCKED
), gone AS (
  DELETE FROM th_jobs j USING lapsed l WHERE j.id = l.id AND l.next = 'cancelled'
), back AS (
  UPDATE th_jobs j
  SET status = l.next, lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL, updated_at = :now,
      run_at = CASE l.next WHEN 'ready' THEN NULL ELSE l.run_at END,
      due_at = CASE l.next WHEN 'ready' THEN l.lease_expires_at ELSE l.due_at END,
      claimed_at = CASE l.next WHEN 'ready' THEN NULL ELSE l.claimed_at END,
      started_at = CASE l.next WHEN 'ready' THEN NULL ELSE l.start END,
      dlq_reason = CASE l.next WHEN 'dlq' THEN :crash_loop_text END,
      dlq_code = CASE l.next WHEN 'dlq' THEN 'crash_loop' END,
      dlq_failed_at = CASE l.next WHEN 'dlq' THEN CAST(:now AS timestamptz) END,
      last_error = CASE l.next WHEN 'dlq' THEN :crash_loop_text ELSE l.last_error END,
      failed_at = CASE l.next WHEN 'dlq' THEN :now ELSE l.failed_at END
  FROM lapsed l WHERE j.id = l.id AND l.next <> 'cancelled'
)
INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error, code,
  lease_token, lease_owner, due_at, claimed_at, started_at,
  payload, meta, run_at, expires_at, timeout_nanos, max_attempts, attempts, forgiven, last_error, failed_at,
  cancel_requested_at, idempotency_key, dedupe_scope, progress, created_at)
SELECT l.id, l.type, l.queue, l.tenant_id, l.priority, 'lapsed', l.next, :now, l.next = 'cancelled', l.attempts + 1,
  l.deliveries, CASE l.next WHEN 'dlq' THEN :crash_loop_text ELSE :why END,
  CASE l.next WHEN 'dlq' THEN 'crash_loop' END, decode(l.lease_token, 'hex'), l.lease_owner, l.due_at, l.claimed_at, l.start,
  t.payload, t.meta, t.run_at, t.expires_at, NULLIF(t.timeout_nanos, 0), t.max_attempts, NULLIF(t.attempts, 0),
  NULLIF(t.forgiven, 0),
  CASE l.next WHEN 'dlq' THEN :crash_loop_text WHEN 'cancelled' THEN NULLIF(t.last_error, '') END,
  CASE l.next WHEN 'dlq' THEN :now WHEN 'cancelled' THEN t.failed_at END,
  t.cancel_requested_at, t.idempotency_key, t.dedupe_scope, t.progress, t.created_at
FROM lapsed l LEFT JOIN lapsed t ON t.id = l.id AND l.next <> 'ready'
RETURNING job_id, type, queue, tenant_id, attempt_no, delivery - COALESCE(forgiven, 0), code;
