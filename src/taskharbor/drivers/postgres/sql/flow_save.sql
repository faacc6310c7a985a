UPDATE th_workflows SET state = :state, done = :done, failed = :failed, ended_at = CAST(:ended_at AS timestamptz) WHERE id = :id;
