DELETE FROM th_buckets WHERE bucket = ANY (CAST(:buckets AS text[])) AND wake_at IS NULL;
