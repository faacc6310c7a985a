SELECT 1 FROM th_workflows WHERE state IN ('starting', 'running', 'failed', 'cancelling', 'compensating') LIMIT 1;
