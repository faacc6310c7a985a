DELETE FROM th_limits WHERE scope = :scope AND name = :name AND per = :per
