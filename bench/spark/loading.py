"""Jobs into PostgreSQL: our sink beside Spark's JDBC writer with rewritten batches.

Both write the same jobs into the same table with the same indexes; the rounds alternate. Ours checks every row, stages
it, and publishes the load exactly once; the other only inserts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from bench.harness import Result, Turns, say
from bench.spark.bed import PARTITIONS, Bed, Size, jdbc


def loading(bed: Bed, size: Size) -> list[Result]:
    """P13: rows of a DataFrame become jobs."""
    url = bed.fresh_url()
    ours, theirs = _frames(bed.spark, size.jobs)
    rewritten = {**jdbc(url, dbtable="th_jobs"), "url": jdbc(url)["url"] + "?reWriteBatchedInserts=true"}
    ways: dict[str, Callable[[], None]] = {
        "ours": lambda: (
            ours.write.format("taskharbor").mode("append").options(url=url, type="order.ship", queue="orders").save()
        ),
        "jdbc": lambda: theirs.write.format("jdbc").options(**rewritten).mode("append").save(),
    }
    say(f"Spark: loading {size.jobs:,} jobs")
    turns = Turns()
    with psycopg.connect(url, autocommit=True) as connection:
        for turn in range(size.rounds + 1):
            for name, write in ways.items():
                connection.execute("TRUNCATE th_jobs, th_keys, th_loads")
                connection.execute("CHECKPOINT")
                started = time.perf_counter()
                write()
                seconds = time.perf_counter() - started
                found = connection.execute("SELECT count(*) FROM th_jobs").fetchone()
                if found != (size.jobs,):
                    raise AssertionError(f"{name} wrote {found} jobs, not {size.jobs}")
                if turn:  # the first round warms both up
                    turns.add(name, size.jobs / seconds)
    against = f"Spark's JDBC with rewritten batches, {PARTITIONS} partitions each"
    return [Result("P13", "jobs from Spark", turns.median("ours"), turns.median("jdbc"), "jobs/s", against, 1.2)]


def _frames(spark: Any, count: int) -> tuple[Any, Any]:
    """The payloads for us, and whole rows of the table for JDBC, both ready in memory."""
    from pyspark.sql import functions

    text = functions.format_string('{"order":%d,"to":"someone@example.com","subject":"Your order"}', "id")
    base = spark.range(0, count, 1, PARTITIONS)
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
