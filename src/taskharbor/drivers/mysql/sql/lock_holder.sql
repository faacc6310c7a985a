SELECT status FROM th_jobs WHERE id = :id FOR UPDATE
