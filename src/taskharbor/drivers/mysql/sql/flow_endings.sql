-- The steps of these jobs that may still move, and where their jobs stand.
SELECT s.workflow_id, s.number, s.job_id, s.state, s.waiting,
       COALESCE((SELECT j.status FROM th_jobs j WHERE j.id = s.job_id),
                (SELECT h.status FROM th_history h FORCE INDEX (th_history_job) WHERE h.job_id = s.job_id AND h.final = 1
                 ORDER BY h.seq DESC LIMIT 1))
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS given
STRAIGHT_JOIN th_steps AS s FORCE INDEX (th_steps_job) ON s.job_id = given.id
WHERE TRUE AND s.state IN ('waiting', 'held', 'open', 'failed')
