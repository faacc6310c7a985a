-- Which of these ids a job has, or had.
SELECT id FROM th_jobs WHERE id IN :ids
UNION
SELECT job_id FROM th_history WHERE job_id IN :ids
