"""Claim and history in plain SQL on MariaDB or MySQL. It keeps fewer facts than a driver does (no lease to
find again, no token, history by id alone), so it is a higher mark than the one for PostgreSQL."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from bench.ours import PAYLOAD
from taskharbor.core.ids import new_ids

SCHEMA = (
    "DROP TABLE IF EXISTS raw_jobs, raw_history",
    """CREATE TABLE raw_jobs (
      id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, queue VARCHAR(255) NOT NULL,
      type VARCHAR(255) NOT NULL, payload LONGBLOB NOT NULL, priority INT NOT NULL DEFAULT 0,
      due_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
      created_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), status VARCHAR(16) NOT NULL DEFAULT 'ready',
      owner VARCHAR(255) NULL, claimed_at DATETIME(6) NULL, KEY raw_claim (queue, status, priority, due_at, id))
      ENGINE=InnoDB DEFAULT CHARSET=utf8mb4""",
    """CREATE TABLE raw_history (
      id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, queue VARCHAR(255) NOT NULL,
      type VARCHAR(255) NOT NULL, payload LONGBLOB NOT NULL, priority INT NOT NULL, created_at DATETIME(6) NOT NULL,
      owner VARCHAR(255) NULL, claimed_at DATETIME(6) NULL, finished_at DATETIME(6) NOT NULL)
      ENGINE=InnoDB DEFAULT CHARSET=utf8mb4""",
)
CLAIM = """
SELECT id, type, payload FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= NOW(6)
ORDER BY priority, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
"""
FINISH = """
INSERT INTO raw_history SELECT id, queue, type, payload, priority, created_at, owner, claimed_at, NOW(6)
FROM raw_jobs WHERE id IN %s
"""


class RawMysql:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        socket = parse_qs(parts.query).get("unix_socket", [None])[0]
        where: dict[str, Any] = (
            {"unix_socket": socket} if socket else {"host": parts.hostname, "port": parts.port or 3306}
        )
        self._connection = pymysql.connect(
            **where,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=parts.path.strip("/"),
            autocommit=True,
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        with self._connection.cursor() as cursor:
            for statement in SCHEMA:
                cursor.execute(statement)

    def close(self) -> None:
        self._connection.close()

    def fill(self, count: int) -> int:
        with self._connection.cursor() as cursor:
            for start in range(0, count, 1_000):
                ids = new_ids(min(1_000, count - start))
                rows = [(job_id, "default", "bench", PAYLOAD) for job_id in ids]
                self._connection.begin()
                cursor.executemany("INSERT INTO raw_jobs (id, queue, type, payload) VALUES (%s, %s, %s, %s)", rows)
                self._connection.commit()
        return count

    def drain(self, batch: int) -> int:
        done = 0
        with self._connection.cursor() as cursor:
            while True:
                self._connection.begin()
                cursor.execute(CLAIM, (batch,))
                ids = [row[0] for row in cursor.fetchall()]
                if ids:
                    cursor.execute(
                        "UPDATE raw_jobs SET status = 'inflight', owner = 'me', claimed_at = NOW(6) WHERE id IN %s",
                        (ids,),
                    )
                self._connection.commit()
                if not ids:
                    return done
                self._connection.begin()
                cursor.execute(FINISH, (ids,))
                cursor.execute("DELETE FROM raw_jobs WHERE id IN %s", (ids,))
                self._connection.commit()
                done += len(ids)
