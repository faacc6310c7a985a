"""The same work in plain SQL on PostgreSQL: no leases to check, no retries, no fields beyond the needed."""

from __future__ import annotations

import psycopg

from bench.ours import CHUNK, PAYLOAD
from taskharbor.core.ids import new_ids

SCHEMA = """
DROP TABLE IF EXISTS raw_jobs, raw_history;
CREATE TABLE raw_jobs (
  id TEXT COLLATE "C" PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BYTEA NOT NULL,
  priority INT NOT NULL DEFAULT 0, due_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ NOT NULL DEFAULT now(), status TEXT NOT NULL DEFAULT 'ready',
  owner TEXT NULL, claimed_at TIMESTAMPTZ NULL);
CREATE INDEX raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE TABLE raw_history (
  id TEXT COLLATE "C" PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BYTEA NOT NULL,
  priority INT NOT NULL, created_at TIMESTAMPTZ NOT NULL, owner TEXT NULL,
  claimed_at TIMESTAMPTZ NULL, finished_at TIMESTAMPTZ NOT NULL);
"""
CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT id FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= now()
  ORDER BY priority DESC, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE raw_jobs j SET status = 'inflight', owner = 'me', claimed_at = now() FROM picked WHERE j.id = picked.id
RETURNING j.id, j.type, j.payload
"""
FINISH = """
WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY(%s) RETURNING *)
INSERT INTO raw_history SELECT id, queue, type, payload, priority, created_at, owner, claimed_at, now() FROM gone
"""


class RawPostgres:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._connection.execute(SCHEMA, prepare=False)

    def close(self) -> None:
        self._connection.close()

    def insert_one_by_one(self, count: int) -> int:
        for job_id in new_ids(count):
            self._connection.execute(
                "INSERT INTO raw_jobs (id, queue, type, payload) VALUES (%s, 'default', 'bench', %s)",
                (job_id, PAYLOAD),
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
