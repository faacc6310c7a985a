UPDATE th_workflows SET state = :state, done = :done, failed = :failed, ended_at = :ended_at WHERE id = :id;
