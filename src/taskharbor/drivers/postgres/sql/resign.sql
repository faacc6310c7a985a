UPDATE th_leader SET until = :until WHERE name = :name AND holder = :holder AND epoch = :epoch;
