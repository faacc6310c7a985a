SELECT priority, id, tenant_id, due_at FROM th_jobs FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status = 'ready' AND queue = :queue AND due_at >= '2000-01-01' AND due_at <= :now
FOR UPDATE SKIP LOCKED
