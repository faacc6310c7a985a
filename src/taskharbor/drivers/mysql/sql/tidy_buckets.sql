-- Buckets without a bench, a few at a time.
SELECT bucket, scope, name, per, tokens, counted_at FROM th_buckets FORCE INDEX (PRIMARY)
WHERE bucket > :after AND wake_at IS NULL
ORDER BY bucket
LIMIT :most
