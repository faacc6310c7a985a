-- Of a limit that is gone: what has a bench stays until that is empty.
DELETE FROM th_buckets WHERE scope = :scope AND name = :name AND per = :per AND wake_at IS NULL;
