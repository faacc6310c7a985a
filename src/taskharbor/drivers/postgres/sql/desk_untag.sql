UPDATE th_jobs j SET due_at = j.due_was, due_was = NULL
FROM unnest(CAST(:ids AS text[])) AS item (id)
WHERE j.id = item.id;
