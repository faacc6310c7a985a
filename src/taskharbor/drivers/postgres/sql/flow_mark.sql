-- Joined and not `= ANY`: with that, PostgreSQL may walk over all steps of the workflow for each of the numbers.
UPDATE th_steps s SET state = :state
FROM unnest(CAST(:workflow_ids AS text[]), CAST(:numbers AS int[])) AS given (workflow_id, number)
WHERE s.workflow_id = given.workflow_id AND s.number = given.number;
