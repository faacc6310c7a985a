DELETE FROM th_schedules WHERE name = :name;
