-- Clocks differ a little: time that was counted once is never counted again.
INSERT INTO th_buckets (bucket, scope, name, per, tokens, counted_at)
VALUES (:bucket, :scope, :name, :per, :token, :now)
ON CONFLICT (bucket) DO UPDATE
SET tokens = excluded.tokens, counted_at = max(coalesce(counted_at, 0), excluded.counted_at);
