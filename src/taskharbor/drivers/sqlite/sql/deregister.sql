DELETE FROM th_workers WHERE id = :id;
