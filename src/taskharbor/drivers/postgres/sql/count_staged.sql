-- How many jobs and how many of them with a key, how many refused rows, and when the first job expires.
SELECT count(*) FILTER (WHERE reject_reason IS NULL), count(idempotency_key), count(reject_reason),
       LEAST(min(expires_at), CAST(:expires_at AS timestamptz))
FROM th_staged WHERE run = :run AND attempt = ANY (CAST(:attempts AS bigint[]));
