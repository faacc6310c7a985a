-- What waits for this step waits for one less; what waits for none any more is held.
UPDATE th_steps
   SET waiting = waiting - 1, state = CASE WHEN state = 'waiting' AND waiting <= 1 THEN 'held' ELSE state END
 WHERE workflow_id = :workflow_id
   AND number IN (SELECT effect FROM th_edges WHERE workflow_id = :workflow_id AND cause = :number);
