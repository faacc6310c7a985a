SELECT id FROM th_workflows WHERE ended_at < :before ORDER BY ended_at LIMIT :most
