SELECT wanted.id, held.job_id, held.payload_hash, held.taken_by
FROM JSON_TABLE(:items, '$[*]' COLUMNS (
       id              VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
       dedupe_scope    VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.dedupe_scope',
       idempotency_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.idempotency_key'
     )) AS wanted
STRAIGHT_JOIN th_keys AS held FORCE INDEX (PRIMARY)
  ON held.dedupe_scope = wanted.dedupe_scope AND held.idempotency_key = wanted.idempotency_key
