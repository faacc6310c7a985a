"""Loading jobs into PostgreSQL: our sink beside Spark's JDBC writer with rewritten batches, in one run.

    python bench/pipeline_load.py [--jobs 200000] [--jar /usr/share/java/postgresql.jar]

Both write the same jobs into the same table with the same indexes; the rounds alternate. Ours checks every row, stages
it, and publishes the load exactly once; the other only inserts. The jar is in Debian's libpostgresql-jdbc-java.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg

from taskharbor.drivers import open_driver
from taskharbor.testing.servers import postgres_server

JARS: Final = ("/usr/share/java/postgresql.jar", "/usr/share/java/postgresql-jdbc4.jar")
TARGET: Final = 1.2


def frames(spark: Any, count: int, partitions: int) -> tuple[Any, Any]:
    """The payloads for us, and whole rows of the table for JDBC, both ready in memory."""
    from pyspark.sql import functions

    text = functions.format_string('{"order":%d,"to":"someone@example.com","subject":"Your order"}', "id")
    base = spark.range(0, count, 1, partitions)
    ours = base.select(text.alias("payload")).cache()
    now = functions.current_timestamp()
    theirs = base.select(
        functions.expr("uuid()").alias("id"),
        functions.lit("order.ship").alias("type"),
        functions.lit("orders").alias("queue"),
        functions.lit("default").alias("tenant_id"),
        functions.encode(text, "utf-8").alias("payload"),
        functions.lit(0).alias("priority"),
        functions.lit(5).alias("max_attempts"),
        now.alias("due_at"),
        now.alias("created_at"),
        now.alias("updated_at"),
    ).cache()
    ours.count()
    theirs.count()
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jar", default=next((jar for jar in JARS if Path(jar).exists()), None))
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    if words.jar is None:
        parser.exit(1, "no JDBC driver here: apt-get install libpostgresql-jdbc-java, or give --jar\n")
    from taskharbor.pipeline import session

    spark = session(words.master, **{"spark.jars": words.jar})
    with postgres_server() as server, open_driver(url := server.create_database()) as driver:
        driver.migrate()
        ours, theirs = frames(spark, words.jobs, words.partitions)
        parts = urlsplit(url)
        jdbc = {
            "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true",
            "user": parts.username or "",
            "password": parts.password or "",
            "dbtable": "th_jobs",
            "driver": "org.postgresql.Driver",
        }

        def by_us() -> None:
            options = {"url": url, "type": "order.ship", "queue": "orders"}
            ours.write.format("taskharbor").mode("append").options(**options).save()

        def by_jdbc() -> None:
            theirs.write.format("jdbc").options(**jdbc).mode("append").save()

        results = _rounds({"taskharbor": by_us, "jdbc": by_jdbc}, url, words.jobs, words.rounds)
    spark.stop()
    _report(results, words.jobs, as_json=words.json)


def _rounds(writers: dict[str, Callable[[], None]], url: str, jobs: int, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in writers}
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(rounds + 1):
            for name, write in writers.items():
                connection.execute("TRUNCATE th_jobs, th_keys, th_loads")
                connection.execute("CHECKPOINT")
                begun = time.perf_counter()
                write()
                seconds = time.perf_counter() - begun
                found = connection.execute("SELECT count(*) FROM th_jobs").fetchone()
                assert found == (jobs,), found
                if number:  # the first round warms both up
                    taken[name].append(seconds)
    return taken


def _report(results: dict[str, list[float]], jobs: int, *, as_json: bool) -> None:
    rates = {name: jobs / statistics.median(seconds) for name, seconds in results.items()}
    ratio = rates["taskharbor"] / rates["jdbc"]
    if as_json:
        print(json.dumps({"jobs": jobs, "rates": rates, "ratio": ratio, "target": TARGET}))
        return
    for name, rate in rates.items():
        spread = ", ".join(f"{seconds:.2f}" for seconds in sorted(results[name]))
        print(f"{name:12} {rate:10,.0f} jobs/s   ({spread} s)")
    print(f"ratio        {ratio:10.2f}   (target {TARGET})")


if __name__ == "__main__":
    main()
