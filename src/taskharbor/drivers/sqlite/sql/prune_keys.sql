DELETE FROM th_keys
 WHERE job_id = :id
   AND (dedupe_scope, idempotency_key) IN (SELECT dedupe_scope, idempotency_key
                                             FROM th_history INDEXED BY th_history_jobs
                                            WHERE job_id = :id AND final = 1);
