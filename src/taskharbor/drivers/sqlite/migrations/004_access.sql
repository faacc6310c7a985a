-- Tokens of servers: who may call one, for which tenant ('*' is all) and in which role. Only the hash of a secret is kept.
CREATE TABLE th_tokens (
  id          TEXT    NOT NULL PRIMARY KEY,
  name        TEXT    NOT NULL,
  tenant_id   TEXT    NOT NULL,
  role        TEXT    NOT NULL,
  secret_hash TEXT    NOT NULL,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NULL,
  revoked_at  INTEGER NULL
) WITHOUT ROWID;
