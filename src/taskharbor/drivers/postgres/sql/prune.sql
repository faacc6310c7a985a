-- Of these jobs, forget those that are over and ended before the given time: the last word on each is old, and not
-- behind the given place of the feed, none is live, and none a step of a workflow that is still known, which others may
-- want the result of. All in one statement, which sees one moment: the id of a purged
-- job may come into use again at any time, and what that one records stays.
WITH ended AS MATERIALIZED (
  SELECT h.job_id
  FROM th_history h
  WHERE h.job_id = ANY (CAST(:ids AS text[])) AND h.at < :before AND h.status <> 'ready'
    AND (h.xid, h.seq) <= (CAST(CAST(:last_xid AS text) AS xid8), :last_seq)
    AND NOT EXISTS (SELECT FROM th_jobs j WHERE j.id = h.job_id)
    AND NOT EXISTS (SELECT FROM th_steps s WHERE s.job_id = h.job_id)
    AND NOT EXISTS (SELECT FROM th_history l WHERE l.job_id = h.job_id AND (l.xid, l.seq) > (h.xid, h.seq))
  LIMIT :limit
), gone AS (
  DELETE FROM th_history WHERE job_id = ANY (ARRAY (SELECT job_id FROM ended))
  RETURNING job_id, dedupe_scope, idempotency_key
), freed AS (
  DELETE FROM th_keys k USING gone
  WHERE k.dedupe_scope = gone.dedupe_scope AND k.idempotency_key = gone.idempotency_key AND k.job_id = gone.job_id
)
SELECT count(DISTINCT job_id) FROM gone;
