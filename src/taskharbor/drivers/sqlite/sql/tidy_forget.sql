DELETE FROM th_buckets WHERE bucket = :bucket AND wake_at IS NULL;
