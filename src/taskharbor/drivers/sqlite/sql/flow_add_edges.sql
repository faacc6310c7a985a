INSERT INTO th_edges (workflow_id, cause, effect) VALUES (:workflow_id, :cause, :effect);
