-- `lock_holder` for several, without waiting for any: those that others have are left out.
SELECT id FROM th_jobs WHERE id = ANY (CAST(:ids AS text[])) ORDER BY id FOR UPDATE SKIP LOCKED;
