"""Plain SQL on MariaDB or MySQL through PyMySQL. Bulk is one multi-row insert for 1,000 rows.

There are no partial indexes, so the same-facts table keeps ready jobs and leases in one index, by the moment each is
due: a claim moves a row from the one part to the other. A claim returns no rows either, so all of a batch have one
token that the client chose.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from bench.ours import PAYLOAD
from taskharbor.core.ids import new_ids

INSERT = 1_000


@dataclass(frozen=True, slots=True)
class Words:
    schema: tuple[str, ...]
    select: str
    lease: str
    record: str


SAME_FACTS = Words(
    schema=(
        "DROP TABLE IF EXISTS raw_jobs, raw_history",
        """CREATE TABLE raw_jobs (
          id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, queue VARCHAR(255) NOT NULL,
          type VARCHAR(255) NOT NULL, tenant_id VARCHAR(64) NOT NULL DEFAULT 'default', payload LONGBLOB NOT NULL,
          priority INT NOT NULL DEFAULT 0, due_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
          created_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), max_attempts INT NOT NULL DEFAULT 5,
          attempts INT NOT NULL DEFAULT 0, deliveries INT NOT NULL DEFAULT 0,
          status VARCHAR(16) NOT NULL DEFAULT 'ready', lease_token VARCHAR(64) NULL, lease_owner VARCHAR(255) NULL,
          lease_expires_at DATETIME(6) NULL, claimed_at DATETIME(6) NULL,
          claim_rank INT NOT NULL DEFAULT 0, claim_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
          KEY raw_claim (queue, status, claim_rank, claim_at))
          ENGINE=InnoDB DEFAULT CHARSET=utf8mb4""",
        """CREATE TABLE raw_history (
          seq BIGINT AUTO_INCREMENT PRIMARY KEY, job_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
          queue VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, tenant_id VARCHAR(64) NOT NULL,
          payload LONGBLOB NOT NULL, priority INT NOT NULL, due_at DATETIME(6) NOT NULL,
          created_at DATETIME(6) NOT NULL, max_attempts INT NOT NULL, attempts INT NOT NULL, deliveries INT NOT NULL,
          lease_token VARCHAR(64) NULL, lease_owner VARCHAR(255) NULL, claimed_at DATETIME(6) NULL,
          finished_at DATETIME(6) NOT NULL, KEY raw_history_job (job_id))
          ENGINE=InnoDB DEFAULT CHARSET=utf8mb4""",
    ),
    select="""
SELECT id, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts, deliveries FROM raw_jobs
WHERE queue = 'default' AND status = 'ready' AND claim_at <= NOW(6)
ORDER BY claim_rank, claim_at, id LIMIT %s FOR UPDATE SKIP LOCKED
""",
    lease="""
UPDATE raw_jobs
SET status = 'inflight', lease_token = %(token)s, lease_owner = 'me',
    lease_expires_at = NOW(6) + INTERVAL 5 MINUTE, claim_rank = 0, claim_at = lease_expires_at, claimed_at = NOW(6),
    deliveries = deliveries + 1
WHERE id IN %(ids)s
""",
    record="""
INSERT INTO raw_history (job_id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts,
                         deliveries, lease_token, lease_owner, claimed_at, finished_at)
SELECT id, queue, type, tenant_id, payload, priority, due_at, created_at, max_attempts, attempts, deliveries,
       lease_token, lease_owner, claimed_at, NOW(6)
FROM raw_jobs WHERE id IN %(ids)s
""",
)
MINIMAL = Words(
    schema=(
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
          type VARCHAR(255) NOT NULL, payload LONGBLOB NOT NULL, priority INT NOT NULL,
          created_at DATETIME(6) NOT NULL, owner VARCHAR(255) NULL, claimed_at DATETIME(6) NULL,
          finished_at DATETIME(6) NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4""",
    ),
    select="""
SELECT id, type, payload FROM raw_jobs WHERE queue = 'default' AND status = 'ready' AND due_at <= NOW(6)
ORDER BY priority, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
""",
    lease="UPDATE raw_jobs SET status = 'inflight', owner = 'me', claimed_at = NOW(6) WHERE id IN %(ids)s",
    record="""
INSERT INTO raw_history SELECT id, queue, type, payload, priority, created_at, owner, claimed_at, NOW(6)
FROM raw_jobs WHERE id IN %(ids)s
""",
)


class RawMysql:
    def __init__(self, url: str, words: Words) -> None:
        self._words = words
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
            for statement in words.schema:
                cursor.execute(statement)

    def close(self) -> None:
        self._connection.close()

    def fill(self, count: int) -> int:
        with self._connection.cursor() as cursor:
            for start in range(0, count, INSERT):
                ids = new_ids(min(INSERT, count - start))
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
                cursor.execute(self._words.select, (batch,))
                ids = [row[0] for row in cursor.fetchall()]
                if ids:
                    cursor.execute(self._words.lease, {"ids": ids, "token": uuid.uuid4().hex})
                self._connection.commit()
                if not ids:
                    return done
                self._connection.begin()
                cursor.execute(self._words.record, {"ids": ids})
                cursor.execute("DELETE FROM raw_jobs WHERE id IN %s", (ids,))
                self._connection.commit()
                done += len(ids)
