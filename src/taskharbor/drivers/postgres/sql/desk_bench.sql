INSERT INTO th_bench (job_id, bucket, priority, position)
SELECT id, bucket, priority, position
FROM unnest(CAST(:ids AS text[]), CAST(:buckets AS text[]), CAST(:priorities AS int[]),
            CAST(:positions AS timestamptz[])) AS item (id, bucket, priority, position)
ON CONFLICT (job_id) DO UPDATE
SET bucket = EXCLUDED.bucket, priority = EXCLUDED.priority, position = EXCLUDED.position;
