-- history.sql in outline.
SELECT CAST(CAST(xid AS text) AS bigint) AS place, seq, job_id, type, queue, tenant_id, outcome, status, at, due_at,
       started_at, attempt_no, lease_owner, code
FROM th_history
WHERE (xid, seq) > (CAST(CAST(:xid AS text) AS xid8), :seq) AND xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid, seq
LIMIT :limit;
