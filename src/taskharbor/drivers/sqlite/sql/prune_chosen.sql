-- Whether this job is over and ended before the given time: the last word on it is old, and not behind the given
-- place of the feed, it is not live, and no step of a known workflow.
SELECT 1
  FROM th_history AS ended INDEXED BY th_history_jobs
 WHERE job_id = :id AND at < :before AND seq <= :upto AND status <> 'ready'
   AND NOT EXISTS (SELECT 1 FROM th_jobs WHERE th_jobs.id = ended.job_id)
   AND NOT EXISTS (SELECT 1 FROM th_steps WHERE th_steps.job_id = ended.job_id)
   AND NOT EXISTS (SELECT 1 FROM th_history AS later INDEXED BY th_history_jobs
                    WHERE later.job_id = ended.job_id AND later.seq > ended.seq);
