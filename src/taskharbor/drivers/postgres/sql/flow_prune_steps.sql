DELETE FROM th_steps WHERE workflow_id = ANY (CAST(:ids AS text[]));
