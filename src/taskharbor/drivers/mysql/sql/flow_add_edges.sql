INSERT INTO th_edges (workflow_id, cause, effect)
SELECT :workflow_id, cause, effect
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       cause INT PATH '$.cause',
       effect INT PATH '$.effect'
     )) AS item
