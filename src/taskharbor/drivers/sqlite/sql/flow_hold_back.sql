UPDATE th_jobs SET due_at = 253370764800000000, due_was = NULL WHERE id = :id AND status = 'ready';
