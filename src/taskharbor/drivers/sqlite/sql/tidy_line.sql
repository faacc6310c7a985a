SELECT min(priority) FROM th_fair WHERE queue = :queue AND priority > :after;
