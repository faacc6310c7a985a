SELECT f.tenant_id, f.tag
  FROM json_each(:tenants) AS given CROSS JOIN th_fair AS f
 WHERE f.queue = :queue AND f.priority = :priority AND f.tenant_id = given.value;
