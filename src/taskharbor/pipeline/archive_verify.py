"""That the lake has what is to be pruned: day by day, as many rows, and the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline import delta
from taskharbor.pipeline.archive_plan import ArchiveRefused, Due
from taskharbor.pipeline.archive_rows import EVERYTHING, checksum, digests, store_rows, totals
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY, SILVER_ATTEMPTS, SILVER_REJECTS
from taskharbor.pipeline.manifests import Side, Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taskharbor.pipeline.store import PipelineStore

_NAMED: Final = 3


def verify(spark: SparkSession, lake: Lake, store: PipelineStore, url: str, due: Due) -> list[Slice]:
    """Compare every row of these jobs in the store with the lake. Raises ArchiveRefused where they differ."""
    from pyspark.sql import functions as F

    jobs = spark.createDataFrame(due.table.select(["job_id"]))
    # Reduced to digests before they are joined, so that no payload is moved from one executor to another.
    ours = digests(store_rows(spark, store, url, due.last, EVERYTHING)).join(jobs, "job_id", "left_semi").persist()
    try:
        in_store = {row["day"]: row for row in totals(ours)}
        days = sorted(in_store)
        keys = ours.select("seq_no")
        mine = F.col("store_id") == store.store_id
        files = delta.read_table(spark, lake, BRONZE_HISTORY, {"day": days})
        theirs = digests(files.where(mine)).join(keys, "seq_no", "left_semi")
        in_bronze = {row["day"]: row for row in totals(theirs)}
        attempts = delta.read_table(spark, lake, SILVER_ATTEMPTS, {"day": days}).where(mine)
        in_silver = _counts(attempts.select("seq_no", F.col("day").cast("string").alias("day")), keys)
        rejected = _counts(_rejected(spark, lake, store.store_id), keys)
        slices = [
            Slice(
                day,
                _side(in_store[day]),
                _side(in_bronze.get(day)),
                in_store[day]["attempts"] - rejected.get(day, 0),
                in_silver.get(day, 0),
            )
            for day in days
        ]
        problems = [problem for each in slices if (problem := each.problem())]
        if problems:
            raise ArchiveRefused(_said(problems, _examples(ours, theirs)))
    finally:
        ours.unpersist()
    return slices


def _side(row: Any) -> Side:
    return Side() if row is None else Side(row["rows"], checksum(row["high"], row["low"]))


def _counts(rows: DataFrame, keys: DataFrame) -> dict[str, int]:
    found = rows.join(keys, "seq_no", "left_semi").groupBy("day").count().collect()
    return {row["day"]: row["count"] for row in found}


def _rejected(spark: SparkSession, lake: Lake, store_id: str) -> DataFrame:
    """Attempts that silver could not use: they are kept in the rejects instead."""
    from pyspark.sql import functions as F

    rows = delta.read_table(spark, lake, SILVER_REJECTS).where(
        (F.col("store_id") == store_id) & (F.col("source") == "history")
    )
    field = {name: F.get_json_object("row", f"$.{name}") for name in ("seq_no", "at", "attempt_no")}
    day = F.to_date(field["at"].cast("timestamp")).cast("string")
    return rows.where(field["attempt_no"].isNotNull()).select(
        field["seq_no"].cast("long").alias("seq_no"), day.alias("day")
    )


def _examples(ours: DataFrame, theirs: DataFrame) -> list[str]:
    """Some of the jobs whose rows differ."""
    same = ours.select("seq_no", "high", "low").intersect(theirs.select("seq_no", "high", "low"))
    other = ours.join(same, "seq_no", "left_anti").select("job_id").distinct().orderBy("job_id").limit(_NAMED)
    return [row["job_id"] for row in other.collect()]


def _said(problems: Sequence[str], examples: Sequence[str]) -> str:
    more = f"; and {len(problems) - 5} more days" if len(problems) > 5 else ""
    named = f" (such as job {', '.join(examples)})" if examples else ""
    return (
        f"the lake does not have what the store has: {'; '.join(problems[:5])}{more}{named}. "
        "Nothing was pruned: take the lake's table back to a good version, or restore it from a backup"
    )
