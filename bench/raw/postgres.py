"""Plain SQL on PostgreSQL through psycopg, prepared; bulk is COPY. The table with the same facts has the checks of ours
that the design asks for; the minimal one has none."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from bench.ours import CHUNK, PAYLOAD
from taskharbor.core.clock import utc_now
from taskharbor.core.ids import new_ids


@dataclass(frozen=True, slots=True)
class Words:
    schema: str
    claim: str
    finish: str


SAME_FACTS = Words(
    schema="""
DROP TABLE IF EXISTS raw_jobs, raw_history;
CREATE TABLE raw_jobs (
  id TEXT COLLATE "C" PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, tenant_id TEXT NOT NULL DEFAULT 'default',
  payload BYTEA NOT NULL, priority INT NOT NULL DEFAULT 0, due_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ NOT NULL DEFAULT now(), max_attempts INT NOT NULL DEFAULT 5, attempts INT NOT NULL DEFAULT 0,
  deliveries INT NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT 'ready' CHECK (status IN ('ready', 'inflight', 'dlq', 'done', 'expired', 'cancelled')),
  lease_token TEXT NULL, lease_owner TEXT NULL, lease_expires_at TIMESTAMPTZ NULL, claimed_at TIMESTAMPTZ NULL,
  CHECK (least(attempts, max_attempts, deliveries) >= 0),
  CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
  CHECK (status <> 'inflight' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)));
CREATE INDEX raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE INDEX raw_lease ON raw_jobs (queue, lease_expires_at) WHERE status = 'inflight';
CREATE TABLE raw_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id TEXT COLLATE "C" NOT NULL, queue TEXT NOT NULL,
  type TEXT NOT NULL, tenant_id TEXT NOT NULL, payload BYTEA NOT NULL, priority INT NOT NULL,
  due_at TIMESTAMPTZ NOT NULL, created_at TIMESTAMPTZ NOT NULL, max_attempts INT NOT NULL, attempts INT NOT NULL,
  deliveries INT NOT NULL, lease_token TEXT NULL, lease_owner TEXT NULL, claimed_at TIMESTAMPTZ NULL,
  finished_at TIMESTAMPTZ NOT NULL);
CREATE INDEX raw_history_job ON raw_history (job_id);
""",
    claim="""
WITH picked AS MATERIALIZED (
  SELECT id FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= now()
  ORDER BY priority DESC, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE raw_jobs j
SET status = 'inflight', lease_token = replace(gen_random_uuid()::text, '-', ''), lease_owner = 'me',
    lease_expires_at = now() + interval '5 minutes', claimed_at = now(), deliveries = deliveries + 1
FROM picked WHERE j.id = picked.id
RETURNING j.id, j.type, j.tenant_id, j.payload, j.priority, j.due_at, j.created_at, j.max_attempts, j.attempts,
          j.deliveries, j.lease_token
""",
    finish="""
WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY(%s) RETURNING *)
INSERT INTO raw_history (job_id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts,
                         deliveries, lease_token, lease_owner, claimed_at, finished_at)
SELECT id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts, deliveries,
       lease_token, lease_owner, claimed_at, now() FROM gone
""",
)
MINIMAL = Words(
    schema="""
DROP TABLE IF EXISTS raw_jobs, raw_history;
CREATE TABLE raw_jobs (
  id TEXT COLLATE "C" PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BYTEA NOT NULL,
  priority INT NOT NULL DEFAULT 0, due_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ NOT NULL DEFAULT now(), status TEXT NOT NULL DEFAULT 'ready', owner TEXT NULL,
  claimed_at TIMESTAMPTZ NULL);
CREATE INDEX raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE TABLE raw_history (
  id TEXT COLLATE "C" PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BYTEA NOT NULL,
  priority INT NOT NULL, created_at TIMESTAMPTZ NOT NULL, owner TEXT NULL, claimed_at TIMESTAMPTZ NULL,
  finished_at TIMESTAMPTZ NOT NULL);
""",
    claim="""
WITH picked AS MATERIALIZED (
  SELECT id FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= now()
  ORDER BY priority DESC, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE raw_jobs j SET status = 'inflight', owner = 'me', claimed_at = now()
FROM picked WHERE j.id = picked.id
RETURNING j.id, j.type, j.payload
""",
    finish="""
WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY(%s) RETURNING *)
INSERT INTO raw_history
SELECT id, queue, type, payload, priority, created_at, owner, claimed_at, now() FROM gone
""",
)


class RawPostgres:
    def __init__(self, url: str, words: Words) -> None:
        self._words = words
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._connection.execute(words.schema, prepare=False)

    def close(self) -> None:
        self._connection.close()

    def insert_one_by_one(self, count: int) -> int:
        """Only for the table with the same facts."""
        for job_id in new_ids(count):
            now = utc_now()
            self._connection.execute(
                "INSERT INTO raw_jobs (id, queue, type, tenant_id, payload, priority, due_at, created_at, "
                "max_attempts) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (job_id, "default", "bench", "default", PAYLOAD, 0, now, now, 5),
            )
        return count

    def fill(self, count: int) -> int:
        for start in range(0, count, CHUNK):
            ids = new_ids(min(CHUNK, count - start))
            rows = "".join(f"{job_id}\tdefault\tbench\t\\\\x{PAYLOAD.hex()}\n" for job_id in ids)
            with (
                self._connection.cursor() as cursor,
                cursor.copy("COPY raw_jobs (id, queue, type, payload) FROM STDIN") as copy,
            ):
                copy.write(rows.encode())
        return count

    def drain(self, batch: int) -> int:
        done = 0
        while True:
            claimed = self._connection.execute(self._words.claim, (batch,), binary=True).fetchall()
            if not claimed:
                return done
            self._connection.execute(self._words.finish, ([row[0] for row in claimed],))
            done += len(claimed)
