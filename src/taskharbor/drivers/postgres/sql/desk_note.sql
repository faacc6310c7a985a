INSERT INTO th_running (bucket, job_id, token, until)
SELECT * FROM unnest(CAST(:buckets AS text[]), CAST(:ids AS text[]), CAST(:tokens AS text[]),
                     CAST(:untils AS timestamptz[]))
ON CONFLICT (bucket, job_id) DO UPDATE SET token = EXCLUDED.token, until = EXCLUDED.until;
