UPDATE th_buckets SET wake_at = 0 WHERE bucket = :bucket AND wake_at IS NOT NULL;
