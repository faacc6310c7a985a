UPDATE th_jobs
   SET status = 'dlq', dlq_reason = :reason, dlq_code = :code, dlq_failed_at = :now, last_error = :reason,
       failed_at = :now, attempts = attempts + 1, started_at = coalesce(:started_at, started_at, claimed_at),
       lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL, updated_at = :now
 WHERE id = :id AND lease_token = :token AND status = 'inflight' AND lease_expires_at > :now
   AND cancel_requested_at IS NULL;
