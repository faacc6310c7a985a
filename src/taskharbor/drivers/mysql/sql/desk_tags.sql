SELECT f.tenant_id, f.tag
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       tenant_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.tenant_id'
     )) AS given
STRAIGHT_JOIN th_fair AS f FORCE INDEX (PRIMARY)
  ON f.queue = :queue AND f.priority = :priority AND f.tenant_id = given.tenant_id
