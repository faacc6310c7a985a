SELECT w.id, w.name, w.tenant_id, w.policy, w.state, w.total, w.done, w.failed, w.created_at, w.ended_at
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id'
     )) AS given
STRAIGHT_JOIN th_workflows AS w FORCE INDEX (PRIMARY) ON w.id = given.id
FOR UPDATE
