"""Where the Spark scenarios run: one session with a JDBC driver beside our source, and databases on one PostgreSQL.

Spark runs already when a clock starts, for all alike. The JDBC driver is Debian's libpostgresql-jdbc-java.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from taskharbor.drivers import open_driver
from taskharbor.testing.servers import apt

JAR = Path(os.environ.get("TASKHARBOR_JDBC_JAR", "/usr/share/java/postgresql.jar"))
PARTITIONS = 4
BATCH = 5_000
"""Rows of one transaction, as workers settle them."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run does."""

    attempts: int
    jobs: int
    new_rows: int
    rounds: int


FULL = Size(attempts=1_000_000, jobs=200_000, new_rows=1_000, rounds=5)
QUICK = Size(attempts=50_000, jobs=20_000, new_rows=1_000, rounds=1)


@dataclass(frozen=True, slots=True)
class Bed:
    spark: Any
    fresh_address: Callable[[], str]

    def fresh_url(self) -> str:
        """A store with its tables."""
        url = self.fresh_address()
        with open_driver(url) as driver:
            driver.migrate()
        return url


def missing() -> str | None:
    """Why this cannot run here."""
    try:
        import adbc_driver_postgresql  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed: pip install 'taskharbor[spark,postgres]'"
    if not JAR.exists() and not apt.install("libpostgresql-jdbc-java"):
        return f"no JDBC driver at {JAR}: install libpostgresql-jdbc-java, or set TASKHARBOR_JDBC_JAR"
    return None


@contextmanager
def made(server: Any) -> Iterator[Bed]:
    from taskharbor.pipeline import session

    spark = session("local[*]", **{"spark.jars": str(JAR), "spark.driver.memory": "3g"})
    try:
        spark.range(1000).selectExpr("sum(id)").collect()
        yield Bed(spark, server.create_database)
    finally:
        spark.stop()


def filled(url: str, statement: str, first: int, last: int) -> None:
    """Rows of history by `statement`, in transactions of the size that workers make, with statistics and on disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        for low in range(first, last + 1, BATCH):
            connection.execute(statement, {"low": low, "high": min(last, low + BATCH - 1)})
        connection.execute("VACUUM ANALYZE th_history")
        connection.execute("CHECKPOINT")


def jdbc(url: str, **more: object) -> dict[str, str]:
    """Options of Spark's JDBC source for a store's database."""
    parts = urlsplit(url)
    return {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "driver": "org.postgresql.Driver",
        **{name: str(value) for name, value in more.items()},
    }


def jdbc_parts(column: str, rows: int) -> dict[str, object]:
    """How JDBC cuts a read: by the one column that it can cut by."""
    return {
        "partitionColumn": column,
        "lowerBound": 1,
        "upperBound": rows,
        "numPartitions": PARTITIONS,
        "fetchsize": 10_000,
    }
