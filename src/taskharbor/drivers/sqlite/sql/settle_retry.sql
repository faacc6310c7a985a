UPDATE th_jobs
   SET status = 'ready', run_at = :run_at, due_at = coalesce(:run_at, :now), attempts = :attempts,
       last_error = :error, failed_at = :failed_at, lease_token = NULL, lease_owner = NULL,
       lease_expires_at = NULL, claimed_at = NULL, started_at = NULL, updated_at = :now
 WHERE id = :id AND lease_token = :token AND status = 'inflight' AND lease_expires_at > :now
   AND cancel_requested_at IS NULL;
