-- What a claim is about to change and an undone lease must give back.
SELECT id, due_at, progress, updated_at FROM th_jobs FORCE INDEX (PRIMARY) WHERE id IN :ids
