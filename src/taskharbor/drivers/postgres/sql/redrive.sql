-- Deliveries go on rising, because they fence; none of them is held against the job any more.
UPDATE th_jobs j
SET status = 'ready', run_at = item.run_at, due_at = COALESCE(item.run_at, :now), forgiven = j.deliveries,
    attempts = CASE WHEN CAST(:reset_attempts AS boolean) THEN 0 ELSE j.attempts END,
    dlq_reason = NULL, dlq_code = NULL, dlq_failed_at = NULL, claimed_at = NULL, started_at = NULL, updated_at = :now
FROM unnest(CAST(:ids AS text[]), CAST(:run_ats AS timestamptz[])) AS item (id, run_at)
WHERE j.id = item.id;
