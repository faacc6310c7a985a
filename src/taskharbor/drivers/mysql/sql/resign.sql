UPDATE th_leader SET until = '1970-01-01 00:00:00' WHERE name = :name AND holder = :holder AND epoch = :epoch
