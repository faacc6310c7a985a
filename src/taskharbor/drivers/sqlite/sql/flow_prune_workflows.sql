DELETE FROM th_workflows WHERE id = :id;
