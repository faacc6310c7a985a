-- Workflows that began to start long ago and never did.
SELECT id FROM th_workflows WHERE state = 'starting' AND created_at < :before ORDER BY id LIMIT :most
