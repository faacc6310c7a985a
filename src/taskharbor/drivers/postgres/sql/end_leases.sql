-- The leases of dead workers end now, so that they can be taken back like any other.
UPDATE th_jobs SET lease_expires_at = LEAST(lease_expires_at, :now)
WHERE status = 'inflight' AND lease_owner = ANY (CAST(:owners AS text[]));
