SELECT 1 FROM th_workflows WHERE state IN ('starting', 'running', 'failed', 'compensating') LIMIT 1;
