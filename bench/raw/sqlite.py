"""Plain SQL on SQLite, with a sync at every commit. Bulk is executemany in transactions of 10,000 rows."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass

from bench.ours import CHUNK, PAYLOAD
from taskharbor.core.ids import new_ids

PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"


@dataclass(frozen=True, slots=True)
class Words:
    schema: str
    claim: str
    record: str


SAME_FACTS = Words(
    schema="""
CREATE TABLE raw_jobs (
  id TEXT NOT NULL PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, tenant_id TEXT NOT NULL DEFAULT 'default',
  payload BLOB NOT NULL, priority INT NOT NULL DEFAULT 0, due_at INT NOT NULL, created_at INT NOT NULL,
  max_attempts INT NOT NULL DEFAULT 5, attempts INT NOT NULL DEFAULT 0, deliveries INT NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT 'ready', lease_token TEXT, lease_owner TEXT, lease_expires_at INT, claimed_at INT);
CREATE INDEX raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE INDEX raw_lease ON raw_jobs (queue, lease_expires_at) WHERE status = 'inflight';
CREATE TABLE raw_history (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, queue TEXT NOT NULL, type TEXT NOT NULL,
  tenant_id TEXT NOT NULL, payload BLOB NOT NULL, priority INT NOT NULL, due_at INT NOT NULL, created_at INT NOT NULL,
  max_attempts INT NOT NULL, attempts INT NOT NULL, deliveries INT NOT NULL, lease_token TEXT, lease_owner TEXT,
  claimed_at INT, finished_at INT NOT NULL);
CREATE INDEX raw_history_job ON raw_history (job_id);
""",
    claim="""
UPDATE raw_jobs
SET status = 'inflight', lease_token = lower(hex(randomblob(16))), lease_owner = 'me',
    lease_expires_at = :now + 300000000, claimed_at = :now, deliveries = deliveries + 1
WHERE rowid IN (
  SELECT rowid FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= :now
  ORDER BY priority DESC, due_at, id LIMIT :batch)
RETURNING rowid, id, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts, deliveries,
          lease_token
""",
    record="""
INSERT INTO raw_history (job_id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts,
                         deliveries, lease_token, lease_owner, claimed_at, finished_at)
SELECT id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts, deliveries,
       lease_token, lease_owner, claimed_at, :now
FROM raw_jobs WHERE rowid IN (SELECT value FROM json_each(:rows))
""",
)
MINIMAL = Words(
    schema="""
CREATE TABLE raw_jobs (
  id TEXT NOT NULL PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BLOB NOT NULL,
  priority INT NOT NULL DEFAULT 0, due_at INT NOT NULL, created_at INT NOT NULL,
  status TEXT NOT NULL DEFAULT 'ready', owner TEXT, claimed_at INT);
CREATE INDEX raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE TABLE raw_history (
  id TEXT NOT NULL PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BLOB NOT NULL, priority INT NOT NULL,
  created_at INT NOT NULL, owner TEXT, claimed_at INT, finished_at INT NOT NULL);
""",
    claim="""
UPDATE raw_jobs SET status = 'inflight', owner = 'me', claimed_at = :now WHERE rowid IN (
  SELECT rowid FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= :now
  ORDER BY priority DESC, due_at, id LIMIT :batch)
RETURNING rowid, id, type, payload
""",
    record="""
INSERT INTO raw_history SELECT id, queue, type, payload, priority, created_at, owner, claimed_at, :now
FROM raw_jobs WHERE rowid IN (SELECT value FROM json_each(:rows))
""",
)


class RawSqlite:
    def __init__(self, path: str, words: Words) -> None:
        self._words = words
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(PRAGMAS + words.schema)

    def close(self) -> None:
        self._connection.close()

    def fill(self, count: int) -> int:
        run = self._connection
        for start in range(0, count, CHUNK):
            now = time.time_ns() // 1_000
            rows = [(job_id, PAYLOAD, now, now) for job_id in new_ids(min(CHUNK, count - start))]
            run.execute("BEGIN IMMEDIATE")
            run.executemany(
                "INSERT INTO raw_jobs (id, queue, type, payload, due_at, created_at) "
                "VALUES (?, 'default', 'bench', ?, ?, ?)",
                rows,
            )
            run.execute("COMMIT")
        return count

    def drain(self, batch: int) -> int:
        run = self._connection
        done = 0
        while True:
            now = time.time_ns() // 1_000
            run.execute("BEGIN IMMEDIATE")
            claimed = run.execute(self._words.claim, {"now": now, "batch": batch}).fetchall()
            run.execute("COMMIT")
            if not claimed:
                return done
            rows = json.dumps([row[0] for row in claimed])
            run.execute("BEGIN IMMEDIATE")
            run.execute(self._words.record, {"now": now, "rows": rows})
            run.execute("DELETE FROM raw_jobs WHERE rowid IN (SELECT value FROM json_each(?))", (rows,))
            run.execute("COMMIT")
            done += len(claimed)
