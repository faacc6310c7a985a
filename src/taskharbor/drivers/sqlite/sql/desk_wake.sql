-- A bucket that has a bench now.
INSERT INTO th_buckets (bucket, scope, name, per, wake_at) VALUES (:bucket, :scope, :name, :per, :wake_at)
ON CONFLICT (bucket) DO UPDATE SET wake_at = min(coalesce(wake_at, excluded.wake_at), excluded.wake_at);
