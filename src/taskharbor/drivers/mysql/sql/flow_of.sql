SELECT DISTINCT s.workflow_id
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS given
STRAIGHT_JOIN th_steps AS s FORCE INDEX (th_steps_job) ON s.job_id = given.id
WHERE TRUE AND s.state IN ('waiting', 'held', 'open', 'failed')
