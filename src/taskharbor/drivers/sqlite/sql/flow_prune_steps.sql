DELETE FROM th_steps WHERE workflow_id = :id;
