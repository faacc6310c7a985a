-- Tokens of servers: who may call one, for which tenant ('*' is all) and in which role. Only the hash of a secret is kept.
-- The statement may run again.
CREATE TABLE IF NOT EXISTS th_tokens (
  id          VARCHAR(64) NOT NULL PRIMARY KEY,
  name        VARCHAR(255) NOT NULL,
  tenant_id   VARCHAR(255) NOT NULL,
  role        VARCHAR(16) NOT NULL,
  secret_hash VARCHAR(64) NOT NULL,
  created_at  DATETIME(6) NOT NULL,
  expires_at  DATETIME(6) NULL,
  revoked_at  DATETIME(6) NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
