DELETE FROM th_workers WHERE id IN :ids
