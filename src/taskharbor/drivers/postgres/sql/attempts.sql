SELECT job_id, attempt_no, delivery, outcome, error, code, lease_owner, encode(lease_token, 'hex'), due_at, claimed_at,
       started_at, at
FROM th_history WHERE job_id = :id AND attempt_no IS NOT NULL ORDER BY xid, seq;
