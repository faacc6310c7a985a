UPDATE th_jobs SET due_was = due_at, due_at = :tag WHERE id = :id AND status = 'ready' AND due_was IS NULL;
