-- What waits for this step waits for one more; what was held waits again.
UPDATE th_steps SET waiting = waiting + 1, state = CASE WHEN state = 'held' THEN 'waiting' ELSE state END
 WHERE workflow_id = :workflow_id
   AND number IN (SELECT effect FROM th_edges WHERE workflow_id = :workflow_id AND cause = :number);
