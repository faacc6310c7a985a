SELECT holder, epoch, until FROM th_leader WHERE name = :name FOR UPDATE
