UPDATE th_leader SET holder = :holder, epoch = :epoch, until = :until WHERE name = :name
