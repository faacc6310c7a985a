SELECT MIN(priority) FROM th_fair WHERE queue = :queue AND priority > :after
