DELETE FROM th_edges WHERE workflow_id = :id;
