SELECT bucket, count(*), NULL, NULL FROM th_running WHERE bucket = ANY (CAST(:buckets AS text[])) GROUP BY bucket
UNION ALL
SELECT bucket, 0, tokens, counted_at FROM th_buckets
WHERE bucket = ANY (CAST(:buckets AS text[])) AND tokens IS NOT NULL;
