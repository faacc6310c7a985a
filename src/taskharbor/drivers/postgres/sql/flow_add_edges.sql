INSERT INTO th_edges (workflow_id, cause, effect)
SELECT :workflow_id, * FROM unnest(CAST(:causes AS int[]), CAST(:effects AS int[]));
