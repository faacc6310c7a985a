DELETE FROM th_staged WHERE staged_at < :before;
