-- Whoever gives out tags in a line holds this row, so that nobody else does.
SELECT tag FROM th_fair WHERE queue = :queue AND priority = :priority AND tenant_id = '' FOR UPDATE;
