WITH item AS (
  SELECT * FROM unnest(
    CAST(:ids AS text[]), CAST(:tokens AS text[]), CAST(:untils AS timestamptz[]), CAST(:starts AS timestamptz[]),
    CAST(:progresses AS text[])
  ) AS item (id, token, until, start, progress)
)
UPDATE th_jobs j
SET lease_expires_at = item.until, started_at = COALESCE(item.start, j.started_at),
    progress = COALESCE(item.progress, j.progress), updated_at = :now
FROM item
WHERE j.id = item.id AND j.lease_token = item.token AND j.lease_expires_at > :now
RETURNING j.id, j.lease_token, j.lease_expires_at, j.lease_owner, j.cancel_requested_at IS NOT NULL;
