"""Rows of the feed as DataFrames, the same from the store and from the lake, with a checksum that both sides share.

The canonical form of a row is JSON by column names: times in microseconds, payloads and results as their SHA-256. The
checksum of many rows is the sum of their SHA-256, so neither order nor partitions matter, and a row that is there
twice counts twice. All of it is native Spark; the store's side comes as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.schemas import FEED, arrow, pick
from taskharbor.pipeline.store import PipelineStore, open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

EVERYTHING: Final = tuple(field.name for field in FEED.fields)
FEW_ROWS: Final = 20_000
FEW_WIDE_ROWS: Final = 2_000
"""Up to here the driver reads by itself; less where payloads come along."""
_DIGITS: Final = 15
"""Of a SHA-256 in each of its two parts: fifteen hexadecimal digits are sixty bits."""


def store_rows(spark: SparkSession, store: PipelineStore, url: str, upto: str, columns: Sequence[str]) -> DataFrame:
    """The rows that the store has up to a cursor. Read where Spark runs, unless they are few."""
    schema = pick(FEED, columns)
    few = FEW_WIDE_ROWS if "payload" in columns else FEW_ROWS
    if store.kind == "json" or store.ahead(None, upto, few) == upto:
        import pyarrow as pa

        table = pa.Table.from_batches(store.read_history(None, upto, columns), schema=arrow(schema))
        return spark.createDataFrame(table, schema)
    ranges = store.split(None, upto, 4 * max(2, spark.sparkContext.defaultParallelism))
    numbered = [(place, after, end) for place, (after, end) in enumerate(ranges)]
    names = list(columns)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on executors."""
        for batch in batches:
            for row in batch.to_pylist():
                with open_store(url, reuse=True) as source:
                    yield from source.read_history(row["after"], row["upto"], names)

    asked = spark.createDataFrame(numbered, "place int, after string, upto string")
    return asked.repartitionByRange(len(numbered), "place").mapInArrow(read, schema)


def place(rows: DataFrame) -> DataFrame:
    """With the two numbers that a cursor ends with, by which rows of a store are ordered; the first is 0 in stores
    whose cursors have only one."""
    from pyspark.sql import functions as F

    before = F.element_at(F.split("position", ":"), -2)
    return rows.withColumn("xid", F.coalesce(before.try_cast("long"), F.lit(0)))


def order_of(store: PipelineStore, cursor: str | None) -> tuple[int, int]:
    numbers = store.order_of(cursor)
    return (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def cursor_at(store: PipelineStore, like: str, xid: int, sequence: int) -> str:
    """The cursor of the row with these numbers, for a store that gave the cursor `like`."""
    count = len(store.order_of(None))
    return ":".join([like.rsplit(":", count)[0], *map(str, (xid, sequence)[-count:])])


def digests(rows: DataFrame) -> DataFrame:
    """For each row what tells it from others, and its SHA-256 in two parts that can be added up."""
    from pyspark.sql import functions as F

    digest = F.sha2(F.to_json(F.struct(*_canonical())), 256)
    found = rows.select(
        "seq_no",
        "job_id",
        F.to_date("at").cast("string").alias("day"),
        F.col("attempt_no").isNotNull().alias("attempt"),
        digest.alias("digest"),
    )
    parts = (F.substring("digest", 1 + number * _DIGITS, _DIGITS) for number in range(2))
    high, low = (F.conv(part, 16, 10).cast("decimal(38,0)") for part in parts)
    return found.select("seq_no", "job_id", "day", "attempt", high.alias("high"), low.alias("low"))


def _canonical() -> list[Column]:
    from pyspark.sql import functions as F

    columns = []
    for field in FEED.fields:
        column, kind = F.col(field.name), field.dataType.typeName()
        if field.name == "store_id":
            continue
        if kind == "timestamp":
            column = F.unix_micros(column)
        elif kind == "binary":
            column = F.sha2(column, 256)
        columns.append(column.alias(field.name))
    return columns


def totals(rows: DataFrame) -> list[Any]:
    """By day: rows, attempts, and the sums of the digests."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy("day")
        .agg(
            F.count("*").alias("rows"),
            F.count_if("attempt").alias("attempts"),
            F.sum("high").alias("high"),
            F.sum("low").alias("low"),
        )
        .collect()
    )


def checksum(high: Any, low: Any) -> str:
    return f"{int(high or 0):024x}{int(low or 0):024x}"
