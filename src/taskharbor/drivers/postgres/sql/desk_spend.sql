INSERT INTO th_buckets (bucket, scope, name, per, tokens, counted_at)
SELECT bucket, scope, name, per, tokens, counted_at
FROM unnest(CAST(:buckets AS text[]), CAST(:scopes AS text[]), CAST(:names AS text[]), CAST(:pers AS text[]),
            CAST(:tokens AS double precision[]), CAST(:counted AS timestamptz[]))
     AS item (bucket, scope, name, per, tokens, counted_at)
ON CONFLICT (bucket) DO UPDATE SET tokens = EXCLUDED.tokens, counted_at = EXCLUDED.counted_at;
