UPDATE th_jobs SET due_at = due_was, due_was = NULL WHERE id = :id;
