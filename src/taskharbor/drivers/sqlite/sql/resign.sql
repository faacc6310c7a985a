UPDATE th_leader SET until = 0 WHERE name = :name AND holder = :holder AND epoch = :epoch;
