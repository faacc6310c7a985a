SELECT r.bucket, count(*), NULL, NULL
  FROM json_each(:buckets) AS given CROSS JOIN th_running AS r
 WHERE r.bucket = given.value
 GROUP BY r.bucket
UNION ALL
SELECT b.bucket, 0, b.tokens, b.counted_at
  FROM json_each(:buckets) AS given CROSS JOIN th_buckets AS b
 WHERE b.bucket = given.value AND b.tokens IS NOT NULL;
