DELETE seat
FROM JSON_TABLE(:items, '$[*]' COLUMNS (id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$')) AS gone
STRAIGHT_JOIN th_bench AS seat FORCE INDEX (PRIMARY) ON seat.job_id = gone.id
