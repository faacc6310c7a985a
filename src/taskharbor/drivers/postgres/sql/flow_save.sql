UPDATE th_workflows w
SET state = given.state, done = given.done, failed = given.failed, ended_at = given.ended_at
FROM unnest(CAST(:ids AS text[]), CAST(:states AS text[]), CAST(:counts AS int[]), CAST(:failures AS int[]),
            CAST(:ends AS timestamptz[])) AS given (id, state, done, failed, ended_at)
WHERE w.id = given.id;
