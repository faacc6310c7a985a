UPDATE th_buckets SET wake_at = :now
WHERE wake_at > :beyond AND scope = :scope AND name = :name AND per = :per;
