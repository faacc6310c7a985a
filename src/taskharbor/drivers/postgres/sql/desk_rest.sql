UPDATE th_buckets b
SET wake_at = CASE WHEN (SELECT t.job_id FROM th_bench t WHERE t.bucket = b.bucket LIMIT 1) IS NOT NULL
                   THEN item.until END
FROM unnest(CAST(:buckets AS text[]), CAST(:untils AS timestamptz[])) AS item (bucket, until)
WHERE b.bucket = item.bucket;
