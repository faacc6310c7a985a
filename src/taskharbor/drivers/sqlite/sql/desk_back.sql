UPDATE th_jobs SET due_at = :position, due_was = CASE WHEN :position <> due_was THEN due_was END
 WHERE id = :id AND status = 'ready' AND due_at = 253370764800000000;
