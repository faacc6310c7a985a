SELECT priority, id, tenant_id FROM th_jobs
WHERE id = ANY (CAST(:ids AS text[])) AND status = 'ready' AND queue = :queue
  AND due_at >= '2000-01-01Z' AND due_at <= :now
ORDER BY priority DESC, due_at, id
LIMIT :most
FOR UPDATE SKIP LOCKED;
