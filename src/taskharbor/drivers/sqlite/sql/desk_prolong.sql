UPDATE th_running SET until = :until WHERE bucket = :bucket AND job_id = :job_id;
