INSERT OR REPLACE INTO th_bench (job_id, bucket, priority, position) VALUES (:id, :bucket, :priority, :position);
