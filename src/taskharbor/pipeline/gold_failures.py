"""gold/failures: errors by fingerprint and day, with what they cost and whom they hit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from taskharbor.pipeline.gold import News

MOST_TENANTS: Final = 50
SAMPLE_CHARACTERS: Final = 1000
_KEY: Final = ["store_id", "fingerprint", "queue", "type", "day"]


def parts(news: News) -> DataFrame:
    from pyspark.sql import functions as F

    burned = news.attempts.where("burned and fingerprint is not null")
    return burned.groupBy(*_KEY).agg(
        F.min("error_class").alias("error_class"),
        # The same one whatever order the rows come in. What went wrong stands at the end of a traceback.
        F.expr(f"right(max(error), {SAMPLE_CHARACTERS})").alias("sample"),
        F.count("*").alias("failures"),
        F.count_if(F.col("status") == "dlq").alias("dead"),
        F.sum("ran_s").alias("burned_s"),
        F.min("finished_at").alias("first_seen"),
        F.max("finished_at").alias("last_seen"),
        F.slice(F.array_sort(F.collect_set("tenant_id")), 1, MOST_TENANTS).alias("tenants"),
    )


def publish(rows: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    together = F.array_sort(F.array_distinct(F.flatten(F.collect_list("tenants"))))
    added = rows.groupBy(*_KEY).agg(
        F.min("error_class").alias("error_class"),
        F.max("sample").alias("sample"),
        F.sum("failures").alias("failures"),
        F.sum("dead").alias("dead"),
        F.sum("burned_s").alias("burned_s"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.slice(together, 1, MOST_TENANTS).alias("tenants"),
    )
    day = Window.partitionBy("store_id", "day")
    return added.withColumn("share", F.col("failures") / F.sum("failures").over(day))
