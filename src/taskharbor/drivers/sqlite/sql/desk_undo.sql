-- A lease that this transaction made is undone. A job with a bucket is put where no claim walks over it.
UPDATE th_jobs
   SET status = 'ready', lease_token = NULL, lease_owner = NULL, lease_expires_at = NULL, claimed_at = NULL,
       deliveries = deliveries - 1, progress = :progress, updated_at = :updated_at,
       due_at = CASE :bucket WHEN '' THEN :position ELSE 253370764800000000 END,
       due_was = CASE WHEN :bucket = '' AND :position = due_at THEN NULL ELSE due_at END
 WHERE id = :id;
