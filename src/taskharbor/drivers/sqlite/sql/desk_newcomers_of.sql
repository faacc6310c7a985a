SELECT j.priority, j.id, j.tenant_id
  FROM json_each(:ids) AS given CROSS JOIN th_jobs AS j
 WHERE j.id = given.value AND j.status = 'ready' AND j.queue = :queue
   AND j.due_at >= 946684800000000 AND j.due_at <= :now
 ORDER BY j.priority DESC, j.due_at, j.id
 LIMIT :most;
