UPDATE th_jobs
   SET lease_expires_at = :lease_expires_at, started_at = coalesce(:started_at, started_at),
       progress = coalesce(:progress, progress), updated_at = :now
 WHERE id = :id AND lease_token = :token AND status = 'inflight' AND lease_expires_at > :now
RETURNING lease_owner, cancel_requested_at;
