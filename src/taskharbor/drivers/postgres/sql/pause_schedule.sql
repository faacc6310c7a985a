UPDATE th_schedules SET paused = :paused, updated_at = :now WHERE name = :name RETURNING name;
