-- The newest rows of the feed in outline. As history.sql does, it stops below the oldest transaction still running.
-- `place` has a name of its own, because ORDER BY xid would else mean that column, and sort all there is.
SELECT CAST(CAST(xid AS text) AS bigint) AS place, seq, job_id, type, queue, tenant_id, outcome, status, at, due_at,
       started_at, attempt_no, lease_owner, code
FROM th_history
WHERE xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid DESC, seq DESC
LIMIT :limit;
