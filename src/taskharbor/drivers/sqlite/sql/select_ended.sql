-- Jobs that ended long ago: finished ones, and those that were purged from the DLQ. Not
-- steps of a workflow that is still known.
SELECT at, seq, job_id
  FROM th_history AS ended INDEXED BY th_history_ended
 WHERE status <> 'ready' AND final = :final AND status = :status AND queue = :queue AND at < :before
   AND seq <= :upto AND NOT EXISTS (SELECT 1 FROM th_steps WHERE th_steps.job_id = ended.job_id)
   AND (:final OR (NOT EXISTS (SELECT 1 FROM th_jobs WHERE th_jobs.id = ended.job_id)
   AND NOT EXISTS (SELECT 1 FROM th_steps WHERE th_steps.job_id = ended.job_id)
                   AND NOT EXISTS (SELECT 1 FROM th_history AS later INDEXED BY th_history_jobs
                                    WHERE later.job_id = ended.job_id AND later.seq > ended.seq)))
 ORDER BY at
 LIMIT :limit;
