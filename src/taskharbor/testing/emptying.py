"""Empty a store of a test database between tests: quicker than making a new one."""

from __future__ import annotations

from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DriverClosed, InvalidURL
from taskharbor.drivers.governed import GoverningCalls
from taskharbor.drivers.opening import DEFAULT_PREFIX, check_prefix, open_driver

_TABLES: Final = (
    *("jobs", "history", "keys", "workers", "leader", "queues", "schedules", "staged", "loads"),
    *("limits", "buckets", "bench", "running", "fair"),
    *("workflows", "steps", "edges", "tokens"),
)

LARGE: Final = 500_000
"""Bytes of the table of jobs."""


def empty_store(url: str, prefix: str = DEFAULT_PREFIX) -> None:
    """Delete every job and everything about jobs, workers, queues, limits, schedules and tokens. The schema and the
    identity of the store stay, and so do counters, so that no cursor of the history feed ever comes twice."""
    connection = connect(url)
    try:
        _empty(connection, prefix)
    finally:
        connection.close()


class SharedStore:
    """One migrated store on a server for many tests, which see it empty and one after the other.

    Keeps its connections from test to test: logging in costs more than most tests do.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = dict(parse_qsl(urlsplit(url).query)).get("prefix", DEFAULT_PREFIX)
        self._driver = open_driver(url)
        self._driver.migrate()
        self._connection = connect(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._driver.close()
        self._connection.close()

    def driver(self) -> Driver:
        """An open driver on the store, which is empty."""
        _empty(self._connection, self._prefix)
        try:
            self._driver.now()
        except DriverClosed:
            self._driver = open_driver(self._url)
        if isinstance(self._driver, GoverningCalls):
            self._driver.forget_all()  # of the test before
        return self._driver


def _empty(connection: Any, prefix: str) -> None:
    cursor = connection.cursor()
    try:
        _clear_large_jobs(connection, cursor, prefix)
        statements = [f"DELETE FROM {check_prefix(prefix)}{name}" for name in _TABLES]
        if hasattr(connection, "pgconn"):
            statements = ["; ".join(statements)]  # one round trip
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
    finally:
        cursor.close()


def _clear_large_jobs(connection: Any, cursor: Any, prefix: str) -> None:
    """Deleted rows stay in PostgreSQL's indexes until they are vacuumed. With very many of them the driver would find
    that claims are slow, and begin where the last one ended, which a test that expects an order would notice."""
    if hasattr(connection, "pgconn"):
        jobs = f"{check_prefix(prefix)}jobs"
        cursor.execute("SELECT pg_relation_size(CAST(%s AS regclass))", (jobs,))
        if cursor.fetchone()[0] > LARGE:
            cursor.execute(f"TRUNCATE {jobs}")


def connect(url: str) -> Any:
    """A plain DBAPI connection to the database of a store, for what a test does behind a driver's back."""
    parts = urlsplit(url)
    match parts.scheme:
        case "postgresql" | "postgres":
            import psycopg

            # Nothing is prepared: behind a pooler the next transaction may be on another connection.
            return psycopg.connect(url.partition("?")[0], prepare_threshold=None)
        case "mysql" | "mariadb":
            import pymysql

            options = dict(parse_qsl(parts.query))
            return pymysql.connect(
                host=parts.hostname or "localhost",
                port=parts.port or 3306,
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=unquote(parts.path.lstrip("/")),
                unix_socket=options.get("unix_socket"),
            )
    raise InvalidURL(f"{parts.scheme}:// stores are not emptied: make a new one in another directory instead")
