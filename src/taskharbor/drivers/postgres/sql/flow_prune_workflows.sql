DELETE FROM th_workflows WHERE id = ANY (CAST(:ids AS text[]));
