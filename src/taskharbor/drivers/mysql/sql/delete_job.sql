DELETE FROM th_jobs WHERE id = :id
