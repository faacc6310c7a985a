"""Claim and history in plain SQL on SQLite. It keeps fewer facts than a driver does (no lease to
find again, no token, history by id alone), so it is a higher mark than the one for PostgreSQL."""

from __future__ import annotations

import sqlite3
import time

from bench.ours import CHUNK, PAYLOAD
from taskharbor.core.ids import new_ids

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS raw_jobs (
  id TEXT PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BLOB NOT NULL, priority INT NOT NULL DEFAULT 0,
  due_at INT NOT NULL, created_at INT NOT NULL, status TEXT NOT NULL DEFAULT 'ready', owner TEXT, claimed_at INT);
CREATE INDEX IF NOT EXISTS raw_claim ON raw_jobs (queue, priority DESC, due_at, id) WHERE status = 'ready';
CREATE TABLE IF NOT EXISTS raw_history (
  id TEXT PRIMARY KEY, queue TEXT NOT NULL, type TEXT NOT NULL, payload BLOB NOT NULL, priority INT NOT NULL,
  created_at INT NOT NULL, owner TEXT, claimed_at INT, finished_at INT NOT NULL);
"""
CLAIM = """
UPDATE raw_jobs SET status = 'inflight', owner = 'me', claimed_at = :now WHERE id IN (
  SELECT id FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= :now
  ORDER BY priority DESC, due_at, id LIMIT :batch)
RETURNING id, type, payload
"""
FINISH = """
INSERT INTO raw_history
SELECT id, queue, type, payload, priority, created_at, owner, claimed_at, ? FROM raw_jobs WHERE id = ?
"""


class RawSqlite:
    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(SCHEMA)

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
            claimed = run.execute(CLAIM, {"now": now, "batch": batch}).fetchall()
            run.execute("COMMIT")
            if not claimed:
                return done
            run.execute("BEGIN IMMEDIATE")
            run.executemany(FINISH, [(now, row[0]) for row in claimed])
            run.executemany("DELETE FROM raw_jobs WHERE id = ?", [(row[0],) for row in claimed])
            run.execute("COMMIT")
            done += len(claimed)
