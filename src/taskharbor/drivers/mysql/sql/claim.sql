-- None if a move has shut the store by now: the jobs are locked, so that one which shuts it later waits for this.
-- Each token is made from 128 fresh random bits and the id, so one value is enough for the whole batch.
UPDATE th_jobs FORCE INDEX (PRIMARY)
SET status = 'inflight',
    lease_token = LEFT(SHA2(CONCAT(:secret, id), 256), 32),
    lease_owner = :owner,
    lease_expires_at = :lease_expires_at,
    deliveries = deliveries + 1,
    claimed_at = :now,
    started_at = NULL,
    progress = NULL,
    updated_at = :now,
    due_at = COALESCE(due_was, due_at),
    due_was = NULL,
    room = NULL
WHERE id IN :ids
  AND COALESCE((SELECT paused FROM th_queues WHERE name = CONCAT(CHAR(1 USING utf8mb4), 'moving')), 0) = 0
