-- A bucket without a bench and without tokens.
DELETE FROM th_buckets WHERE bucket = :bucket AND wake_at IS NULL AND tokens IS NULL;
