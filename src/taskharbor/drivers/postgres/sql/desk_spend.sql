-- Clocks differ a little: time that was counted once is never counted again.
INSERT INTO th_buckets AS b (bucket, scope, name, per, tokens, counted_at)
SELECT bucket, scope, name, per, tokens, CAST(:now AS timestamptz)
FROM unnest(CAST(:buckets AS text[]), CAST(:scopes AS text[]), CAST(:names AS text[]), CAST(:pers AS text[]),
            CAST(:tokens AS double precision[])) AS item (bucket, scope, name, per, tokens)
ON CONFLICT (bucket) DO UPDATE
SET tokens = EXCLUDED.tokens, counted_at = GREATEST(b.counted_at, EXCLUDED.counted_at);
