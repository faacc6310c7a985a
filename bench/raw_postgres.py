"""The same facts kept by plain SQL on PostgreSQL: leases that can be found when they end, history that can be read by
job and in order. No fencing, no priorities to go down, no sweeps, no model: what the server itself can do at most."""

from __future__ import annotations

import psycopg

from bench.ours import CHUNK, PAYLOAD
from taskharbor.core.clock import utc_now
from taskharbor.core.ids import new_ids

SCHEMA = """
DROP TABLE IF EXISTS raw_jobs, raw_history;
CREATE TABLE raw_jobs (
  id TEXT COLLATE "C" PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, tenant_id TEXT NOT NULL DEFAULT 'default',
  payload BYTEA NOT NULL, priority INT NOT NULL DEFAULT 0, due_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ NOT NULL DEFAULT now(), max_attempts INT NOT NULL DEFAULT 5, attempts INT NOT NULL DEFAULT 0,
  deliveries INT NOT NULL DEFAULT 0, status TEXT NOT NULL DEFAULT 'ready', lease_token TEXT NULL,
  lease_owner TEXT NULL, lease_expires_at TIMESTAMPTZ NULL, claimed_at TIMESTAMPTZ NULL);
CREATE INDEX raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE INDEX raw_lease ON raw_jobs (queue, lease_expires_at) WHERE status = 'inflight';
CREATE TABLE raw_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id TEXT COLLATE "C" NOT NULL, queue TEXT NOT NULL,
  type TEXT NOT NULL, tenant_id TEXT NOT NULL, payload BYTEA NOT NULL, priority INT NOT NULL,
  due_at TIMESTAMPTZ NOT NULL, created_at TIMESTAMPTZ NOT NULL, max_attempts INT NOT NULL, attempts INT NOT NULL,
  deliveries INT NOT NULL, lease_token TEXT NULL, lease_owner TEXT NULL, claimed_at TIMESTAMPTZ NULL,
  finished_at TIMESTAMPTZ NOT NULL);
CREATE INDEX raw_history_job ON raw_history (job_id);
"""
CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT id FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= now()
  ORDER BY priority DESC, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE raw_jobs j
SET status = 'inflight', lease_token = replace(gen_random_uuid()::text, '-', ''), lease_owner = 'me',
    lease_expires_at = now() + interval '5 minutes', claimed_at = now(), deliveries = deliveries + 1
FROM picked WHERE j.id = picked.id
RETURNING j.id, j.type, j.tenant_id, j.payload, j.priority, j.due_at, j.created_at, j.max_attempts, j.attempts,
          j.deliveries, j.lease_token
"""
FINISH = """
WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY(%s) RETURNING *)
INSERT INTO raw_history (job_id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts,
                         deliveries, lease_token, lease_owner, claimed_at, finished_at)
SELECT id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts, deliveries,
       lease_token, lease_owner, claimed_at, now() FROM gone
"""


class RawPostgres:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._connection.execute(SCHEMA, prepare=False)

    def close(self) -> None:
        self._connection.close()

    def insert_one_by_one(self, count: int) -> int:
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
            claimed = self._connection.execute(CLAIM, (batch,), binary=True).fetchall()
            if not claimed:
                return done
            self._connection.execute(FINISH, ([row[0] for row in claimed],))
            done += len(claimed)
