-- Whether anybody else has jobs on their way.
SELECT 1 FROM th_staged WHERE run <> :run LIMIT 1;
