SELECT job_id, attempt_no, delivery, outcome, error, code, lease_owner, encode(lease_token, 'hex'), due_at, claimed_at,
       started_at, at
FROM (SELECT * FROM th_history WHERE job_id = :id ORDER BY xid DESC, seq DESC LIMIT 1) last
WHERE attempt_no IS NOT NULL;
