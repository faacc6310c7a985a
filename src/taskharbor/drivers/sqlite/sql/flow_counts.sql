SELECT part, state, count(*) FROM th_steps WHERE workflow_id = :workflow_id GROUP BY part, state ORDER BY part, state;
