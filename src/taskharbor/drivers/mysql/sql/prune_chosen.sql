-- Which of these jobs are over and ended before the given time: the last word on each is old, and not behind the
-- given place of the feed, none is live, and none a step of a known workflow.
SELECT this.job_id, this.seq
FROM th_history AS this FORCE INDEX (th_history_job)
WHERE this.job_id IN :ids AND this.at < :before AND this.seq <= :upto AND this.status <> 'ready'
  AND NOT EXISTS (SELECT 1 FROM th_jobs AS live WHERE live.id = this.job_id)
  AND NOT EXISTS (SELECT 1 FROM th_steps AS step WHERE step.job_id = this.job_id)
  AND NOT EXISTS (SELECT 1 FROM th_history AS later WHERE later.job_id = this.job_id AND later.seq > this.seq)
