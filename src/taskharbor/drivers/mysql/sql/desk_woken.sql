SELECT bucket, scope, name, per FROM th_buckets FORCE INDEX (th_buckets_wake)
WHERE wake_at <= :now
ORDER BY wake_at
LIMIT :most
FOR UPDATE SKIP LOCKED
