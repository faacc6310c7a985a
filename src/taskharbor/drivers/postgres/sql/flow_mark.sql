-- Joined and not `= ANY`: with that, PostgreSQL may walk over all steps of the workflow for each of the numbers.
UPDATE th_steps s SET state = :state
FROM unnest(CAST(:numbers AS int[])) AS given (number)
WHERE s.workflow_id = :workflow_id AND s.number = given.number;
