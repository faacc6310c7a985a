"""The pipeline beside Spark's own JDBC source: `python -m bench.pipeline`, `python -m bench.pipeline --rows 100000`.

Both read the same columns of the same rows with the same number of partitions, in one Spark and in turns, and both
hand every row to Spark (`noop` takes them). The JDBC driver is Debian's libpostgresql-jdbc-java.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from bench.harness import Result, Turns, as_json, say, table
from taskharbor.drivers import open_driver
from taskharbor.testing.servers import ServerUnavailable, apt, postgres_server

ROWS = 1_000_000
QUICK_ROWS = 100_000
PARTITIONS = 4
TURNS = 3
FETCH = 10_000
JAR = Path(os.environ.get("TASKHARBOR_JDBC_JAR", "/usr/share/java/postgresql.jar"))

# As workers leave them behind: one transaction for each batch of settles, one in fifty attempts failed.
FILL = """
INSERT INTO th_history (at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts,
    final, job_id, type, queue, tenant_id, outcome, status, lease_token, lease_owner, error, code, payload, result)
SELECT moment, moment - interval '3 s', moment - interval '2 s', moment - interval '1 s', moment - interval '4 s',
    0, 1, 1, 5, not failed, CAST(lpad(to_hex(number), 12, '0') || substr(md5(number::text), 1, 20) AS uuid)::text,
    'mail.send.' || number %% 20, 'queue-' || number %% 5, 'tenant-' || number %% 100,
    CASE WHEN failed THEN 'retried' ELSE 'succeeded' END, CASE WHEN failed THEN 'ready' ELSE 'done' END,
    decode(md5(number::text), 'hex'), 'worker-' || number %% 8,
    CASE WHEN failed THEN 'TimeoutError: no answer from 10.0.0.' || number %% 250 || ' after 30 s' END, NULL,
    CASE WHEN NOT failed THEN convert_to('{"to": "user-' || number || '@example.com"}', 'UTF8') END,
    CASE WHEN NOT failed THEN convert_to('{"ok": true}', 'UTF8') END
FROM (SELECT number, number %% 50 = 0 AS failed,
             timestamptz '2031-05-01 00:00+00' + number * interval '50 ms' AS moment
      FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS number) AS numbers
"""
COLUMNS = """
seq AS seq_no, job_id, type, queue, tenant_id, priority, attempt_no, delivery, outcome,
outcome = 'succeeded' AS success,
error, code, lease_owner AS worker, due_at, claimed_at, started_at, at AS finished_at
"""


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
def spark_session(cores: int = 2) -> Iterator[Any]:
    from taskharbor.pipeline import session

    spark = session(f"local[{cores}]", **{"spark.jars": str(JAR), "spark.driver.memory": "3g"})
    try:
        yield spark
    finally:
        spark.stop()


def fill(url: str, rows: int, batch: int = 5_000) -> None:
    """So many finished attempts, with statistics as autovacuum makes them a minute later."""
    driver = open_driver(url)
    driver.migrate()
    driver.close()
    with psycopg.connect(url, autocommit=True) as connection:
        for low in range(1, rows + 1, batch):
            connection.execute(FILL, {"low": low, "high": min(rows, low + batch - 1)})
        connection.execute("VACUUM ANALYZE th_history")
        connection.execute("CHECKPOINT")


def jdbc_options(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "driver": "org.postgresql.Driver",
    }


def jdbc_attempts(spark: Any, url: str, rows: int, partitions: int = PARTITIONS) -> Any:
    """The same columns through Spark's own source, cut by the one column that it can cut by."""
    options = {
        **jdbc_options(url),
        "dbtable": f"(SELECT {COLUMNS} FROM th_history WHERE attempt_no IS NOT NULL) AS attempts",
        "partitionColumn": "seq_no",
        "lowerBound": "1",
        "upperBound": str(rows),
        "numPartitions": str(partitions),
        "fetchsize": str(FETCH),
    }
    return spark.read.format("jdbc").options(**options).load()


def our_attempts(spark: Any, url: str, partitions: int = PARTITIONS) -> Any:
    return spark.read.format("taskharbor").options(url=url, table="attempts", partitions=partitions).load()


def timed(frame: Callable[[], Any]) -> float:
    started = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def read_attempts(spark: Any, url: str, rows: int, turns: int = TURNS) -> list[Result]:
    """Finished attempts from PostgreSQL into Spark."""
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: our_attempts(spark, url),
        "jdbc": lambda: jdbc_attempts(spark, url, rows),
    }
    counts = {name: way().count() for name, way in ways.items()}  # also warms both up
    if set(counts.values()) != {rows}:
        raise AssertionError(f"the two did not read the same rows: {counts}")
    taken = Turns()
    for turn in range(turns + 1):
        for name, way in ways.items():
            seconds = timed(way)
            if turn:  # the first one is to warm up
                taken.add(name, rows / seconds)
                say(f"bench: read attempts, {name}: {rows / seconds:,.0f} rows/s")
    against = f"Spark's JDBC, {PARTITIONS} partitions each"
    return [
        Result("P11", "attempts into Spark", taken.median("ours"), taken.median("jdbc"), "rows/s", against, goal=1.15)
    ]


def run(rows: int) -> list[Result]:
    with postgres_server() as server:
        url = server.create_database()
        say(f"bench: filling a store with {rows:,} attempts")
        fill(url, rows)
        with spark_session() as spark:
            return read_attempts(spark, url, rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        say(f"bench: {reason}")
        return 1
    try:
        results = run(options.rows)
    except ServerUnavailable as error:
        say(f"bench: {error}")
        return 1
    print(as_json(results, [], {"rows": options.rows}) if options.json else table(results, []))
    return 0 if all(result.met is not False for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
