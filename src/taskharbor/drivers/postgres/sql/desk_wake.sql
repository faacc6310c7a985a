-- Buckets that have a bench now. LEAST passes over nulls.
INSERT INTO th_buckets AS b (bucket, scope, name, per, wake_at)
SELECT * FROM unnest(CAST(:buckets AS text[]), CAST(:scopes AS text[]), CAST(:names AS text[]), CAST(:pers AS text[]),
                     CAST(:wakes AS timestamptz[]))
ON CONFLICT (bucket) DO UPDATE SET wake_at = LEAST(b.wake_at, EXCLUDED.wake_at);
