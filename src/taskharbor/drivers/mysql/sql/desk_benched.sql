SELECT id FROM th_jobs FORCE INDEX (PRIMARY) WHERE id IN :ids AND status = 'ready' AND due_at = '9999-01-01' FOR UPDATE
