-- Whether there is any job, live or with a history, whose id lies between the two. By the first one behind the lower: so
-- the planner has no choice but the indexes.
SELECT COALESCE((SELECT id FROM th_jobs WHERE id >= :first ORDER BY id LIMIT 1) < :behind, FALSE)
    OR COALESCE((SELECT job_id FROM th_history WHERE job_id >= :first ORDER BY job_id LIMIT 1) < :behind, FALSE);
