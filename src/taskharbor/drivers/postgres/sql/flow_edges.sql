SELECT cause, effect FROM th_edges WHERE workflow_id = :workflow_id ORDER BY cause, effect LIMIT :most;
