"""gold/workers and gold/slo: who was how busy, and whether what was promised was kept; by the hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskharbor.pipeline.slo import Objective

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from taskharbor.pipeline.gold import News

_WORKER: Final = ["store_id", "worker", "bucket", "day"]
_SLO: Final = ["store_id", "bucket", "queue", "type", "objective", "threshold_s", "target", "day"]


def parts(news: News) -> DataFrame:
    """Busy is what lies between a start and an end. When an attempt of a lost worker ended nobody knows: it is counted,
    and neither as busy nor as a sign of life later than its start."""
    from pyspark.sql import functions as F

    ended = F.col("outcome") != "lapsed"
    return (
        news.attempts.where("worker is not null and worker <> ''")
        .groupBy("store_id", "worker", F.date_trunc("hour", "finished_at").alias("bucket"), "day")
        .agg(
            F.count("*").alias("attempts"),
            F.count_if("success").alias("succeeded"),
            F.count_if(F.col("outcome") == "lapsed").alias("lapsed"),
            F.sum(F.when(ended, F.col("ran_s")).otherwise(0.0)).alias("busy_s"),
            F.min("started_at").alias("first_at"),
            F.max(F.when(ended, F.col("finished_at")).otherwise(F.col("started_at"))).alias("last_at"),
        )
    )


def publish(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    added = rows.groupBy(*_WORKER).agg(
        *(F.sum(name).alias(name) for name in ("attempts", "succeeded", "lapsed", "busy_s")),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )
    span = (F.unix_micros("last_at") - F.unix_micros("first_at")) / 1e6
    slots = F.when(span > 0, F.col("busy_s") / span).otherwise(0.0)
    return added.select(
        "*",
        span.alias("span_s"),
        slots.alias("busy_slots"),
        (slots / F.greatest(F.ceil(slots), F.lit(1))).alias("busy_share"),
        F.when(span > 0, F.col("succeeded") / span).otherwise(0.0).alias("throughput"),
        (F.col("lapsed") / F.col("attempts")).alias("crash_rate"),
    )


def slo_parts(news: News) -> DataFrame:
    from pyspark.sql import functions as F

    counted = news.attempts.where(F.col("outcome").isin("succeeded", "retried", "dead", "lapsed"))
    added = counted.groupBy(
        "store_id", F.date_trunc("hour", "finished_at").alias("bucket"), "queue", "type", "day"
    ).agg(
        F.count_if(F.col("waited_s") <= _chosen(news.objectives, "wait_s")).alias("in_time"),
        F.count_if("success").alias("succeeded"),
        F.count("*").alias("total"),
    )
    promised = F.array(
        F.struct(
            F.lit("wait").alias("objective"),
            _chosen(news.objectives, "wait_s").alias("threshold_s"),
            _chosen(news.objectives, "wait_target").alias("target"),
            F.col("in_time").alias("good"),
        ),
        F.struct(
            F.lit("success").alias("objective"),
            F.lit(0.0).alias("threshold_s"),
            _chosen(news.objectives, "success_target").alias("target"),
            F.col("succeeded").alias("good"),
        ),
    )
    each = added.select("store_id", "bucket", "queue", "type", "day", "total", F.explode(promised).alias("promise"))
    return each.select("store_id", "bucket", "queue", "type", "day", "total", "promise.*")


def slo_publish(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    added = rows.groupBy(*_SLO).agg(F.sum("good").alias("good"), F.sum("total").alias("total"))
    return added.withColumn("attainment", F.col("good") / F.col("total")).withColumn(
        "burn_rate", (1 - F.col("attainment")) / (1 - F.col("target"))
    )


def _chosen(objectives: tuple[Objective, ...], name: str) -> Column:
    """The value of the first objective that fits the row; the last fits all."""
    from pyspark.sql import functions as F

    value = F.lit(getattr(objectives[-1], name))
    for each in reversed(objectives[:-1]):
        fits = F.lit(True)
        if each.queue is not None:
            fits = fits & (F.col("queue") == each.queue)
        if each.type is not None:
            fits = fits & (F.col("type") == each.type)
        value = F.when(fits, F.lit(getattr(each, name))).otherwise(value)
    return value
