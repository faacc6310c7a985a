SELECT id, lease_token, status = 'inflight' AND lease_expires_at > :now, lease_owner, cancel_requested_at IS NOT NULL
FROM th_jobs FORCE INDEX (PRIMARY)
WHERE id IN :ids
FOR UPDATE
