SELECT id FROM th_jobs WHERE id = :id FOR UPDATE;
