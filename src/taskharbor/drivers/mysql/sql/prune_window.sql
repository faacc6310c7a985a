-- The next rows of history in order, and for each whether it is old, and whether it is the last word on a job that is
-- no longer live, and no step of a known workflow.
SELECT this.seq, this.job_id, this.at < :before,
       this.at < :before AND this.status <> 'ready'
       AND NOT EXISTS (SELECT 1 FROM th_jobs AS live WHERE live.id = this.job_id)
       AND NOT EXISTS (SELECT 1 FROM th_steps AS step WHERE step.job_id = this.job_id)
       AND NOT EXISTS (SELECT 1 FROM th_history AS later WHERE later.job_id = this.job_id AND later.seq > this.seq)
FROM th_history AS this
WHERE this.seq > :after AND this.seq <= :upto
ORDER BY this.seq LIMIT :limit
