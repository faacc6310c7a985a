SELECT count(*) FROM th_steps WHERE workflow_id = :workflow_id AND state = 'open' AND number >= 0;
