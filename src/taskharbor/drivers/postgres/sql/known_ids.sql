-- Which of these ids a job has, or had.
SELECT id FROM th_jobs WHERE id = ANY (CAST(:ids AS text[]))
UNION
SELECT job_id FROM th_history WHERE job_id = ANY (CAST(:ids AS text[]));
