UPDATE th_jobs SET due_at = :now, due_was = NULL, updated_at = :now
 WHERE id = :id AND status = 'ready' AND due_at >= 253370764800000000;
