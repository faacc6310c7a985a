SELECT id FROM th_jobs WHERE id = ANY (CAST(:ids AS text[]));
