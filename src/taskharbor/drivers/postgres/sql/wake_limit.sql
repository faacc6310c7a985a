UPDATE th_buckets SET wake_at = :now
WHERE scope = :scope AND name = :name AND per = :per AND wake_at > :now;
