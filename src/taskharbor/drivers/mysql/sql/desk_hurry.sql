UPDATE th_buckets FORCE INDEX (th_buckets_wake) SET wake_at = :now
WHERE wake_at > :beyond AND scope = :scope AND name = :name AND per = :per
