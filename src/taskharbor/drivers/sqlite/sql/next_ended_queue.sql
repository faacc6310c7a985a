SELECT min(queue) FROM th_history INDEXED BY th_history_ended
 WHERE status <> 'ready' AND final = :final AND status = :status AND queue > :above;
