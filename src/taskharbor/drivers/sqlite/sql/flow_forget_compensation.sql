UPDATE th_workflows SET compensation = NULL WHERE id = :id;
