UPDATE th_jobs j SET due_at = '9999-01-01 00:00:00+00', due_was = NULL
FROM unnest(CAST(:ids AS text[])) AS given (id)
WHERE j.id = given.id AND j.status = 'ready';
