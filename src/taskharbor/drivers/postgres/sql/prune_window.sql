-- The next rows of history in order, and for each whether it is old, and whether it is the last word on a job that is
-- no longer live, and no step of a known workflow.
SELECT CAST(CAST(h.xid AS text) AS bigint), h.seq, h.job_id, h.at < :before,
       h.at < :before AND h.status <> 'ready'
       AND NOT EXISTS (SELECT FROM th_jobs j WHERE j.id = h.job_id)
       AND NOT EXISTS (SELECT FROM th_steps s WHERE s.job_id = h.job_id)
       AND NOT EXISTS (SELECT FROM th_history l WHERE l.job_id = h.job_id AND (l.xid, l.seq) > (h.xid, h.seq))
FROM th_history h
WHERE (h.xid, h.seq) > (CAST(CAST(:xid AS text) AS xid8), :seq)
  AND (h.xid, h.seq) <= (CAST(CAST(:last_xid AS text) AS xid8), :last_seq)
ORDER BY h.xid, h.seq
LIMIT :limit;
