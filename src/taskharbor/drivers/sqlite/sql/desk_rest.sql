UPDATE th_buckets
   SET wake_at = CASE WHEN EXISTS (SELECT 1 FROM th_bench AS t WHERE t.bucket = :bucket) THEN :until END
 WHERE bucket = :bucket;
