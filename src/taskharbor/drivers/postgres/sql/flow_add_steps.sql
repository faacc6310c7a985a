INSERT INTO th_steps (workflow_id, number, name, part, job_id, waiting, state)
SELECT :workflow_id, * FROM unnest(CAST(:numbers AS int[]), CAST(:names AS text[]), CAST(:parts AS text[]),
                                   CAST(:ids AS text[]), CAST(:waitings AS int[]), CAST(:states AS text[]));
