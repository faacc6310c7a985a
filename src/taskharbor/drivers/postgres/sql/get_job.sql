SELECT * FROM th_all_jobs WHERE id = :id;
