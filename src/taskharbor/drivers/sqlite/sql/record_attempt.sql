-- An attempt after which the job goes back to ready. A delivery that never started leaves no row when `always` is 0.
INSERT INTO th_history (
  job_id, type, queue, tenant_id, priority, outcome, status, at, final, attempt_no, delivery, error,
  lease_token, lease_owner, due_at, claimed_at, started_at
)
SELECT id, type, queue, tenant_id, priority, :outcome, 'ready', :now, 0, attempts + 1, deliveries, :error,
       lease_token, lease_owner, due_at, claimed_at, coalesce(:started_at, started_at, claimed_at)
  FROM th_jobs
 WHERE id = :id AND lease_token = :token AND status = 'inflight' AND lease_expires_at > :now
   AND cancel_requested_at IS NULL
   AND (:always OR coalesce(:started_at, started_at) IS NOT NULL);
