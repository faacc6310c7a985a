SELECT COALESCE(SUM(s.reject_reason IS NULL), 0), COALESCE(SUM(s.reject_reason IS NOT NULL), 0)
FROM th_staged AS s WHERE s.run = :run AND s.attempt IN :attempts
