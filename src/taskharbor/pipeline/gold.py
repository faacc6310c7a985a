"""Gold: what people look at. Each table adds the new rows of a batch to the days that they touch, and replaces these.

A table is two pure functions: `parts` makes rows that add up from the attempts and jobs of a batch, `publish` adds rows
that belong together, old and new, and derives shares and percentiles. Everything is native column expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskharbor.pipeline import lake_schemas as tables
from taskharbor.pipeline.lake_schemas import TableSpec
from taskharbor.pipeline.silver import together
from taskharbor.pipeline.slo import DEFAULT, Objective

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class News:
    """What a batch brought to silver."""

    attempts: DataFrame
    jobs: DataFrame
    """Those whose making became known with this batch: each job once, when it first ended."""
    objectives: tuple[Objective, ...] = DEFAULT


@dataclass(frozen=True, slots=True)
class GoldTable:
    spec: TableSpec
    parts: Callable[[News], DataFrame]
    publish: Callable[[DataFrame], DataFrame]
    """Takes rows of the table, old ones and new parts together."""
    touches: str = "ended"
    """Where a batch touches it: `ended` when attempts ended, `both` there and when jobs were made, `weeks` of that."""


def merged(table: GoldTable, news: News, old: DataFrame | None) -> DataFrame:
    """The rows of the touched days as they are to be now."""
    new = table.parts(news)
    return table.publish(new if old is None else together(old, new)).select(*table.spec.schema.fieldNames())


WHOLE_DAY: Final = "day"
"""The part of a day that holds the rows that are not of one hour."""


def part_of(grain: str, bucket: str, finest: str) -> tuple[Column, Column]:
    """The day and its part that a row belongs to: rows of the finest grain lie apart by their hours."""
    from pyspark.sql import functions as F

    hour = F.when(F.col(grain) == finest, F.date_format(bucket, "HH")).otherwise(WHOLE_DAY)
    return F.to_date(bucket).alias("day"), hour.alias("part")


def _keyed(frame: DataFrame, *extra: Column | str) -> DataFrame:
    return frame.select("store_id", *extra)


# --- throughput --------------------------------------------------------------------------------------------------

_COUNTS: Final = ["enqueued", "started", "succeeded", "retried", "dead", "lapsed", "other"]
_THROUGHPUT_KEY: Final = ["store_id", "grain", "bucket", "queue", "type", "tenant_id", "day", "part"]


def throughput_parts(news: News) -> DataFrame:
    from pyspark.sql import functions as F

    one, none = F.lit(1).cast("long"), F.lit(0).cast("long")
    named = ("succeeded", "retried", "dead", "lapsed")
    where = ["queue", "type", "tenant_id"]
    # A lost worker after which the job was dead is a death, and counts as that alone.
    ended_as = F.when((F.col("outcome") == "lapsed") & (F.col("status") == "dlq"), "dead").otherwise(F.col("outcome"))
    # `started` counts in the minute of the end as well: an attempt is known when it is over.
    ended = _keyed(
        news.attempts,
        F.date_trunc("minute", "finished_at").alias("minute"),
        *where,
        none.alias("enqueued"),
        one.alias("started"),
        *((ended_as == name).cast("long").alias(name) for name in named),
        (~ended_as.isin(*named)).cast("long").alias("other"),
    )
    made = _keyed(
        news.jobs,
        F.date_trunc("minute", "created_at").alias("minute"),
        *where,
        one.alias("enqueued"),
        *(none.alias(name) for name in _COUNTS[1:]),
    )
    by_minute = (
        together(ended, made).groupBy("store_id", "minute", *where).agg(*(F.sum(name).alias(name) for name in _COUNTS))
    )
    grains = F.array(
        *(
            F.struct(F.lit(name).alias("grain"), F.date_trunc(name, "minute").alias("bucket"))
            for name in ("minute", "hour", "day")
        )
    )
    return by_minute.withColumn("at", F.explode(grains)).select(
        "store_id", "at.grain", "at.bucket", *where, *_COUNTS, *part_of("at.grain", "at.bucket", "minute")
    )


def throughput_publish(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(*_THROUGHPUT_KEY).agg(*(F.sum(name).alias(name) for name in _COUNTS))


# --- tenants -----------------------------------------------------------------------------------------------------

NOISY_TIMES: Final = 3.0
NOISY_LEAST: Final = 0.1


def tenants_parts(news: News) -> DataFrame:
    from pyspark.sql import functions as F

    none = F.lit(0).cast("long")
    ran = _keyed(
        news.attempts,
        "tenant_id",
        none.alias("jobs"),
        F.lit(1).cast("long").alias("attempts"),
        F.col("burned").cast("long").alias("failures"),
        F.col("ran_s").alias("compute_s"),
        "day",
    )
    ended = _keyed(
        news.jobs,
        "tenant_id",
        F.lit(1).cast("long").alias("jobs"),
        none.alias("attempts"),
        none.alias("failures"),
        F.lit(0.0).alias("compute_s"),
        F.to_date("last_at").alias("day"),  # a job that was sent back has not ended
    )
    return together(ran, ended)


def tenants_publish(rows: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    sums = ("jobs", "attempts", "failures", "compute_s")
    added = rows.groupBy("store_id", "tenant_id", "day").agg(*(F.sum(name).alias(name) for name in sums))
    day = Window.partitionBy("store_id", "day")
    total = F.sum("compute_s").over(day)
    tenants = F.count("*").over(day)
    shared = added.select(
        "*",
        F.when(total > 0, F.col("compute_s") / total).otherwise(F.lit(0.0)).alias("share"),
        (F.lit(1.0) / tenants).alias("fair_share"),
    )
    loud = (F.col("share") >= NOISY_TIMES * F.col("fair_share")) & (F.col("share") >= NOISY_LEAST)
    return shared.select("*", loud.alias("noisy"))


# --- arrivals ----------------------------------------------------------------------------------------------------


def arrivals_parts(news: News) -> DataFrame:
    from pyspark.sql import functions as F

    weekday, hour = F.weekday("created_at"), F.hour("created_at")
    return _keyed(
        news.jobs,
        "queue",
        "type",
        (weekday * 24 + hour).alias("hour_of_week"),
        weekday.alias("weekday"),
        hour.alias("hour"),
        F.lit(1).cast("long").alias("arrivals"),
        F.to_date(F.date_trunc("week", "created_at")).alias("day"),
    )


def arrivals_publish(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    key = ["store_id", "queue", "type", "hour_of_week", "weekday", "hour", "day"]
    return rows.groupBy(*key).agg(F.sum("arrivals").alias("arrivals"))


def gold_tables() -> tuple[GoldTable, ...]:
    """All but `audit`, which the checks write."""
    from taskharbor.pipeline import gold_failures, gold_latency, gold_workers

    return (
        GoldTable(tables.GOLD_THROUGHPUT, throughput_parts, throughput_publish, "both"),
        GoldTable(tables.GOLD_LATENCY, gold_latency.parts, gold_latency.publish),
        GoldTable(tables.GOLD_FAILURES, gold_failures.parts, gold_failures.publish),
        GoldTable(tables.GOLD_TENANTS, tenants_parts, tenants_publish),
        GoldTable(tables.GOLD_WORKERS, gold_workers.parts, gold_workers.publish),
        GoldTable(tables.GOLD_SLO, gold_workers.slo_parts, gold_workers.slo_publish),
        GoldTable(tables.GOLD_ARRIVALS, arrivals_parts, arrivals_publish, "weeks"),
    )
