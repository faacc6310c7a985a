"""The session in which the lake is worked on: the caller's Spark, with settings that leave the caller's as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def own_session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # What is written goes to Python in batches; larger ones than Spark's default cost less for each row.
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
    # We name every file that we read: to look at a few dozen of them takes no tasks.
    own.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000")
    return own


def tune(own: SparkSession, *, small: bool) -> None:
    """For work on a few thousand rows, or for more: what is small is over before more than one task would begin."""
    parts = 1 if small else max(2, own.sparkContext.defaultParallelism)
    own.conf.set("spark.sql.shuffle.partitions", str(parts))
    # On one machine there is nothing to adapt to, and planning again after each stage takes its time.
    local = own.sparkContext.master.startswith("local")
    own.conf.set("spark.sql.adaptive.enabled", "false" if small or local else "true")
    # To compile a plan takes longer than to interpret it for a few thousand rows.
    own.conf.set("spark.sql.codegen.wholeStage", "false" if small else "true")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")
