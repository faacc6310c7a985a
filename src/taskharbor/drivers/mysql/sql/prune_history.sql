DELETE gone
FROM JSON_TABLE(:items, '$[*]' COLUMNS (id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$')) AS pruned
STRAIGHT_JOIN th_history AS gone FORCE INDEX (th_history_job) ON gone.job_id = pruned.id AND gone.seq <= :last
