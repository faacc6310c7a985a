"""gold/latency: how long attempts waited and ran, as log-spaced histograms that add up, and percentiles from them.

A bin is five per cent wide, so a percentile is at most two and a half per cent off; the greatest is exact.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from taskharbor.pipeline.gold import News

GROWTH: Final = 1.05
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_KEY: Final = ["store_id", "grain", "bucket", "queue", "type", "day", "part"]
_MEASURES: Final = ("wait", "run")


def bin_of(seconds: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(seconds < 0.001, 0).otherwise(1 + F.floor(F.ln(seconds * 1000) / math.log(GROWTH))).cast("int")


def parts(news: News) -> DataFrame:
    """Rows of the table with histograms, and without percentiles."""
    return _folded(_binned(news))


def publish(rows: DataFrame) -> DataFrame:
    """Unfold the histograms, add them up bin by bin, fold them again, and read the percentiles off."""
    from pyspark.sql import functions as F

    percentiles = [
        percentile(F.col(f"{measure}_histogram"), F.col("attempts"), share, F.col(f"{measure}_max_s")).alias(
            f"{measure}_{name}_s"
        )
        for measure in _MEASURES
        for name, share in SHARES.items()
    ]
    return _folded(_unfolded(rows)).select("*", *percentiles)


def percentile(histogram: Column, count: Column, share: float, most: Column) -> Column:
    """The middle of the bin that the share falls into, and never more than the greatest."""
    from pyspark.sql import functions as F

    wanted = F.ceil(count * share)
    start = F.struct(F.lit(0).cast("long").alias("seen"), F.lit(None).cast("int").alias("bin"))

    def step(known: Column, each: Column) -> Column:
        seen = known["seen"] + each["count"]
        reached = known["bin"].isNull() & (seen >= wanted)
        return F.struct(seen.alias("seen"), F.when(reached, each["bin"]).otherwise(known["bin"]).alias("bin"))

    found = F.aggregate(histogram, start, step, lambda known: known["bin"])
    middle = F.when(found == 0, F.lit(0.0)).otherwise(0.001 * F.pow(F.lit(GROWTH), found - 0.5))
    return F.least(middle, most)


def _binned(news: News) -> DataFrame:
    """One row for each hour and each day, queue, type, measure and bin of the new attempts."""
    from pyspark.sql import functions as F

    from taskharbor.pipeline.gold import part_of

    measures = F.array(
        *(
            F.struct(F.lit(name).alias("measure"), F.col(column).alias("s"))
            for name, column in (("wait", "waited_s"), ("run", "ran_s"))
        )
    )
    by_hour = (
        news.attempts.select(
            "store_id",
            F.date_trunc("hour", "finished_at").alias("hour"),
            "queue",
            "type",
            F.explode(measures).alias("m"),
        )
        .withColumn("bin", bin_of(F.col("m.s")))
        .groupBy("store_id", "hour", "queue", "type", F.col("m.measure").alias("measure"), "bin")
        .agg(F.count("*").alias("count"), F.sum("m.s").alias("sum_s"), F.max("m.s").alias("max_s"))
    )
    grains = F.array(
        *(F.struct(F.lit(name).alias("grain"), F.date_trunc(name, "hour").alias("bucket")) for name in ("hour", "day"))
    )
    return by_hour.withColumn("at", F.explode(grains)).select(
        "store_id",
        "at.grain",
        "at.bucket",
        "queue",
        "type",
        *part_of("at.grain", "at.bucket", "hour"),
        "measure",
        "bin",
        "count",
        "sum_s",
        "max_s",
    )


def _unfolded(rows: DataFrame) -> DataFrame:
    """The histograms of published rows as rows. Sums and the greatest go with the first bin."""
    from pyspark.sql import functions as F

    measures = F.array(
        *(
            F.struct(
                F.lit(name).alias("measure"),
                F.col(f"{name}_histogram").alias("histogram"),
                F.col(f"{name}_sum_s").alias("sum_s"),
                F.col(f"{name}_max_s").alias("max_s"),
            )
            for name in _MEASURES
        )
    )
    each = rows.select(*_KEY, F.explode(measures).alias("m")).select(
        *_KEY, "m.measure", "m.sum_s", "m.max_s", F.posexplode("m.histogram").alias("place", "each")
    )
    return each.select(
        *_KEY,
        "measure",
        "each.bin",
        "each.count",
        F.when(F.col("place") == 0, F.col("sum_s")).otherwise(0.0).alias("sum_s"),
        "max_s",
    )


def _folded(binned: DataFrame) -> DataFrame:
    """Bins that belong together as one row for each hour or day, queue and type."""
    from pyspark.sql import functions as F

    added = binned.groupBy(*_KEY, "measure", "bin").agg(
        F.sum("count").alias("count"), F.sum("sum_s").alias("sum_s"), F.max("max_s").alias("max_s")
    )
    columns = []
    for name in _MEASURES:
        here = F.col("measure") == name
        columns += [
            F.sum(F.when(here, F.col("sum_s"))).alias(f"{name}_sum_s"),
            F.max(F.when(here, F.col("max_s"))).alias(f"{name}_max_s"),
            F.array_sort(F.collect_list(F.when(here, F.struct("bin", "count")))).alias(f"{name}_histogram"),
        ]
    return added.groupBy(*_KEY).agg(
        F.sum(F.when(F.col("measure") == "wait", F.col("count"))).alias("attempts"), *columns
    )
