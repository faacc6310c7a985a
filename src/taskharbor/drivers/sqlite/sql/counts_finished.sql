SELECT queue, status, count(*) FROM th_history INDEXED BY th_history_ended
 WHERE status <> 'ready' AND final = 1 GROUP BY status, queue;
