-- Tokens of servers: who may call one, for which tenant ('*' is all) and in which role. Only the hash of a secret is kept.
CREATE TABLE th_tokens (
  id          TEXT COLLATE "C" PRIMARY KEY,
  name        TEXT COLLATE "C" NOT NULL,
  tenant_id   TEXT COLLATE "C" NOT NULL,
  role        TEXT COLLATE "C" NOT NULL,
  secret_hash TEXT COLLATE "C" NOT NULL,
  created_at  TIMESTAMPTZ NOT NULL,
  expires_at  TIMESTAMPTZ NULL,
  revoked_at  TIMESTAMPTZ NULL
);
