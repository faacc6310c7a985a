-- They are ready, and held by this transaction. To say so again would lead the planner away from the index of ids.
UPDATE th_jobs j SET due_was = j.due_at, due_at = item.tag
FROM unnest(CAST(:ids AS text[]), CAST(:tags AS timestamptz[])) AS item (id, tag)
WHERE j.id = item.id AND j.due_was IS NULL;
