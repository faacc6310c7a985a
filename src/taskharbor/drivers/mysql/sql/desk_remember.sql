INSERT INTO th_fair (queue, priority, tenant_id, tag)
SELECT :queue, :priority, item.tenant_id, item.tag
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       tenant_id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.tenant_id',
       tag BIGINT PATH '$.tag'
     )) AS item
ON DUPLICATE KEY UPDATE th_fair.tag = GREATEST(th_fair.tag, VALUES(tag))
