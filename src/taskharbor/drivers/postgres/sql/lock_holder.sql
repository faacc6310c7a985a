-- Where a live holder of a key stands; it stays there until the transaction ends.
SELECT status FROM th_jobs WHERE id = :id FOR UPDATE;
