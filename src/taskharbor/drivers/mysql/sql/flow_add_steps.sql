INSERT INTO th_steps (workflow_id, number, name, part, job_id, waiting, state)
SELECT :workflow_id, number, name, part, id, waiting, state
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       number INT PATH '$.number',
       name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.name',
       part VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.part',
       id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       waiting INT PATH '$.waiting',
       state VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.state'
     )) AS item
