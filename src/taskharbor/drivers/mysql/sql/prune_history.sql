DELETE gone FROM th_history AS gone FORCE INDEX (th_history_job) WHERE gone.job_id IN :ids
