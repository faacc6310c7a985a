DELETE f
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       tenant_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.tenant_id'
     )) AS item
STRAIGHT_JOIN th_fair AS f FORCE INDEX (PRIMARY)
  ON f.queue = :queue AND f.priority = :priority AND f.tenant_id = item.tenant_id
