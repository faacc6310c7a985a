-- Buckets without a bench and without tokens.
DELETE FROM th_buckets WHERE bucket = ANY (CAST(:buckets AS text[])) AND wake_at IS NULL AND tokens IS NULL;
