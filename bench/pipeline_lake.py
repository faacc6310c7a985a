"""The lake: attempts from PostgreSQL through bronze, silver and gold, beside one JDBC read of them into Parquet; and a
second run with a thousandth of the rows beside the first.

Spark runs already when the clock starts, for all of them alike. Run alone: `python -m bench.pipeline_lake 100000`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bench.harness import Result, say, table
from taskharbor.drivers import open_driver
from taskharbor.testing.servers import postgres_server

ROWS = 1_000_000
NEW_ROWS = 1_000
_BATCH = 5_000
JARS = ("/usr/share/java/postgresql.jar",)  # Debian's libpostgresql-jdbc-java

# Nine of ten attempts succeed at once; the tenth is retried with an error, and its job then succeeds.
_FILL = """
INSERT INTO th_history (at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts,
  final, job_id, type, queue, tenant_id, outcome, status, lease_token, lease_owner, error, payload)
SELECT moment + interval '2 s', moment, moment + interval '1 s', moment + interval '1 s',
  CASE WHEN retried THEN NULL ELSE moment - interval '1 s' END, 0,
  CASE WHEN again THEN 2 ELSE 1 END, CASE WHEN again THEN 2 ELSE 1 END, CASE WHEN retried THEN NULL ELSE 5 END,
  NOT retried, 'job-' || CASE WHEN again THEN n - 1 ELSE n END, 'type-' || n %% 7, 'queue-' || n %% 3,
  'tenant-' || n %% 40, CASE WHEN retried THEN 'retried' ELSE 'succeeded' END,
  CASE WHEN retried THEN 'ready' ELSE 'done' END, decode(md5(n::text), 'hex'), 'worker-' || n %% 8,
  CASE WHEN retried THEN 'ValueError: order ' || n || ' has no item ''' || n || '''' END,
  CASE WHEN retried THEN NULL ELSE convert_to('{"order": ' || n || '}', 'UTF8') END
FROM (SELECT n, n %% 10 = 0 AS retried, n %% 10 = 1 AND n > 1 AS again,
        timestamptz '2031-05-01' + n * interval '80 ms' AS moment
      FROM generate_series(%s::bigint, %s::bigint) AS n) AS made
"""
# The columns that the lake takes in, so that both read the same rows.
_JDBC_QUERY = """(
  SELECT seq, at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts, final,
  job_id, type, queue, tenant_id, outcome, status, encode(lease_token, 'hex') AS lease_token, lease_owner, error,
  code, payload, result, meta, progress, run_at, expires_at, timeout_nanos, attempts, forgiven, last_error, failed_at,
  cancel_requested_at, idempotency_key, dedupe_scope FROM th_history) AS h"""


def fill(url: str, first: int, last: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for low in range(first, last + 1, _BATCH):  # one transaction for each batch of settles, as workers make them
            connection.execute(_FILL, (low, min(last, low + _BATCH - 1)))
        connection.execute("VACUUM ANALYZE th_history")


def jdbc_to_parquet(spark: Any, url: str, place: Path, rows: int) -> float:
    parts = urlsplit(url)
    began = time.perf_counter()
    (
        spark.read.format("jdbc")
        .option("url", f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}")
        .option("user", parts.username)
        .option("password", parts.password or "")
        .option("driver", "org.postgresql.Driver")
        .option("dbtable", _JDBC_QUERY)
        .option("fetchsize", 10_000)
        .option("partitionColumn", "seq")
        .option("lowerBound", 1)
        .option("upperBound", rows)
        .option("numPartitions", 4)
        .load()
        .write.mode("overwrite")
        .parquet(str(place))
    )
    return time.perf_counter() - began


def lake(url: str, rows: int = ROWS) -> list[Result]:
    """A PostgreSQL store that is empty and migrated."""
    from taskharbor.pipeline import run, session

    jar = next((jar for jar in JARS if Path(jar).exists()), None)
    spark = session("local[*]", **({"spark.jars": jar} if jar else {}))
    place = Path(tempfile.mkdtemp(prefix="taskharbor-bench-lake-"))
    try:
        fill(url, 1, rows)
        spark.range(1000).selectExpr("sum(id)").collect()  # Spark wakes up before the clock starts
        jdbc_s = jdbc_to_parquet(spark, url, place / "jdbc", rows) if jar else None
        first = _timed(lambda: run(url, place / "lake", spark=spark))
        fill(url, rows + 1, rows + NEW_ROWS)
        second = _timed(lambda: run(url, place / "lake", spark=spark))
        fill(url, rows + NEW_ROWS + 1, rows + 2 * NEW_ROWS)
        third = _timed(lambda: run(url, place / "lake", spark=spark))
    finally:
        spark.stop()
        shutil.rmtree(place)
    say(f"lake: {rows:,} rows, JDBC to Parquet {jdbc_s} s, lake {first[0]:.1f} s {first[1].stages}")
    say(f"lake: second run {second[0]:.2f} s {second[1].stages}, third {third[0]:.2f} s")
    millions = f"{rows / 1e6:g}M attempts"
    return [
        Result("L1", f"{millions} to gold", first[0], jdbc_s, "s", "JDBC read to Parquet", 4.0, at_most=True),
        Result("L2", f"{NEW_ROWS:,} more rows", second[0], first[0], "s", "the first run", 0.1, at_most=True),
        Result("own", f"{NEW_ROWS:,} more, once more", third[0], first[0], "s", "the first run", None),
    ]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with postgres_server() as server:
        url = server.create_database()
        driver = open_driver(url)
        driver.migrate()
        driver.close()
        results = lake(url, rows)
    print(table(results, []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
