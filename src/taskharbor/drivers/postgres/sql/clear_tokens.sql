UPDATE th_buckets SET tokens = NULL, counted_at = NULL WHERE scope = :scope AND name = :name AND per = :per;
