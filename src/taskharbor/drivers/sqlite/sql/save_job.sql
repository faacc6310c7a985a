UPDATE th_jobs
   SET status = :status, run_at = :run_at, due_at = :due_at, attempts = :attempts,
       forgiven = :forgiven, last_error = :last_error, failed_at = :failed_at, lease_token = :lease_token,
       lease_owner = :lease_owner, lease_expires_at = :lease_expires_at, cancel_requested_at = :cancel_requested_at,
       dlq_reason = :dlq_reason, dlq_code = :dlq_code, dlq_failed_at = :dlq_failed_at, progress = :progress,
       updated_at = :updated_at, claimed_at = :claimed_at, started_at = :started_at
 WHERE id = :id;
