-- Jobs that go back in line: retried, snoozed or released. A released one keeps its place, and leaves no trace in
-- history unless its handler had started. One that was to be cancelled is left to the slow path.
WITH item AS (
  SELECT * FROM unnest(
    CAST(:ids AS text[]), CAST(:tokens AS text[]), CAST(:starts AS timestamptz[]), CAST(:outcomes AS text[]),
    CAST(:run_ats AS timestamptz[]), CAST(:attempts AS int[]), CAST(:errors AS text[]),
    CAST(:failed_ats AS timestamptz[])
  ) AS item (item_id, item_token, item_start, outcome, next_run_at, next_attempts, next_error, next_failed_at)
), held AS MATERIALIZED (
  SELECT j.*, item.* FROM item JOIN th_jobs j ON j.id = item.item_id
  WHERE j.lease_token = item.item_token AND j.lease_expires_at > :now
    AND j.cancel_requested_at IS NULL
  FOR UPDATE OF j
), back AS (
  UPDATE th_jobs j
  SET status = 'ready', lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL, claimed_at = NULL,
      started_at = NULL, updated_at = :now,
      run_at = CASE h.outcome WHEN 'released' THEN j.run_at ELSE h.next_run_at END,
      due_at = CASE h.outcome WHEN 'released' THEN j.due_at ELSE COALESCE(h.next_run_at, :now) END,
      attempts = CASE h.outcome WHEN 'retried' THEN h.next_attempts ELSE j.attempts END,
      last_error = CASE h.outcome WHEN 'retried' THEN h.next_error ELSE j.last_error END,
      failed_at = CASE h.outcome WHEN 'retried' THEN h.next_failed_at ELSE j.failed_at END,
      forgiven = CASE h.outcome WHEN 'retried' THEN j.forgiven ELSE j.forgiven + 1 END
  FROM held h WHERE j.id = h.id
), noted AS (
  INSERT INTO th_history (
    job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error,
    lease_token, lease_owner, due_at, claimed_at, started_at)
  SELECT id, type, queue, tenant_id, priority, outcome, 'ready', :now, FALSE, attempts + 1, deliveries,
    NULLIF(next_error, ''), decode(lease_token, 'hex'), lease_owner, due_at, claimed_at,
    COALESCE(item_start, started_at, claimed_at)
  FROM held WHERE outcome <> 'released' OR COALESCE(item_start, started_at) IS NOT NULL
)
SELECT id, lease_token FROM held;
