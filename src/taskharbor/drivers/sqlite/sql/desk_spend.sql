INSERT INTO th_buckets (bucket, scope, name, per, tokens, counted_at)
VALUES (:bucket, :scope, :name, :per, :token, :counted_at)
ON CONFLICT (bucket) DO UPDATE SET tokens = excluded.tokens, counted_at = excluded.counted_at;
