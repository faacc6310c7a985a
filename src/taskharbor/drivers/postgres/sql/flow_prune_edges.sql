DELETE FROM th_edges WHERE workflow_id = ANY (CAST(:ids AS text[]));
