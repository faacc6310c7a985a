UPDATE th_steps SET state = :state WHERE workflow_id = :workflow_id AND number = :number;
