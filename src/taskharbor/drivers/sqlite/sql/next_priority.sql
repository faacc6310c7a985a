-- The highest level below the last one that has ready jobs: one probe of the index, however many jobs a level has.
SELECT max(priority) FROM th_jobs INDEXED BY th_jobs_ready
 WHERE queue = :queue AND status = 'ready' AND priority < :below;
