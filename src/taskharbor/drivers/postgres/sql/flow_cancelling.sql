-- Workflows that are to be cancelled, and are not yet to the last step.
SELECT id FROM th_workflows WHERE state = 'cancelling' ORDER BY id LIMIT :most;
