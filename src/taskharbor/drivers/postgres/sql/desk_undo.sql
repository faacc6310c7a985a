-- Leases that this transaction made are undone. A job with a bucket is put where no claim walks over it.
UPDATE th_jobs j
SET status = 'ready', lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL, claimed_at = NULL,
    deliveries = j.deliveries - 1, progress = item.progress, updated_at = item.updated_at,
    due_at = CASE WHEN item.bucket = '' THEN item.position ELSE '9999-01-01Z' END,
    due_was = CASE WHEN item.bucket = '' AND item.position = j.due_at THEN NULL ELSE j.due_at END
FROM unnest(CAST(:ids AS text[]), CAST(:buckets AS text[]), CAST(:positions AS timestamptz[]),
            CAST(:progresses AS text[]), CAST(:updates AS timestamptz[]))
     AS item (id, bucket, position, progress, updated_at)
WHERE j.id = item.id;
