SELECT s.payload, s.reject_reason FROM th_staged AS s WHERE s.run = :run AND s.attempt IN :attempts AND s.reject_reason IS NOT NULL
