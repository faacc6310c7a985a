-- Which of these jobs are over and ended before the given time: the last word on each is old, and none is live.
SELECT h.job_id
FROM th_history h
WHERE h.job_id = ANY (CAST(:ids AS text[])) AND h.at < :before AND h.status <> 'ready'
  AND NOT EXISTS (SELECT FROM th_jobs j WHERE j.id = h.job_id)
  AND NOT EXISTS (SELECT FROM th_history l WHERE l.job_id = h.job_id AND (l.xid, l.seq) > (h.xid, h.seq))
LIMIT :limit;
