UPDATE th_schedules
   SET next_run_at = :next_run_at, last_run_at = COALESCE(:last_run_at, last_run_at),
       last_job_id = COALESCE(:last_job_id, last_job_id), updated_at = :now
 WHERE name = :name
