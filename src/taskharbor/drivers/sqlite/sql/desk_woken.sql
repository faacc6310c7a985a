SELECT bucket, scope, name, per FROM th_buckets
 WHERE wake_at IS NOT NULL AND wake_at <= :now
 ORDER BY wake_at
 LIMIT :most;
