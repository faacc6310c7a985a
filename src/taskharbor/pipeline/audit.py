"""gold/audit: what was checked, with what result, batch by batch; and the same questions asked of the whole lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from taskharbor.pipeline import delta, few_rows, silver
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY, GOLD_AUDIT, SILVER_ATTEMPTS, SILVER_JOBS
from taskharbor.pipeline.quality import Check
from taskharbor.pipeline.schemas import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taskharbor.pipeline.bronze import Batch
    from taskharbor.pipeline.part_files import DataFile


def write_audit(lake: Lake, batch: Batch, run_id: str, checks: Sequence[Check], tag: str) -> list[DataFile]:
    import pyarrow as pa

    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = [
        {
            "store_id": batch.store_id,
            "batch": batch.number,
            "run_id": run_id,
            "check": check.name,
            "passed": check.passed,
            "expected": check.expected,
            "found": check.found,
            "detail": check.detail,
            "checked_at": now,
            "day": now.date(),
        }
        for check in checks
    ]
    return delta.write_arrow(pa.Table.from_pylist(rows, schema=arrow(GOLD_AUDIT.schema)), lake, GOLD_AUDIT, tag)


def audit_lake(spark: SparkSession, lake: Lake) -> list[Check]:
    """The promises, asked of every row that the lake has. Takes as long as the lake is large."""
    from pyspark.sql import functions as F

    bronze, attempts, jobs = _tables(spark, lake)
    leases = bronze.where("lease_token is not null").groupBy("store_id", "lease_token").count()
    places = bronze.groupBy("store_id", "position").count()
    rows_of_jobs = jobs.groupBy("store_id", "job_id").count()
    lost = bronze.select("store_id", "job_id").distinct().join(jobs, ["store_id", "job_id"], "left_anti").count()
    wanted = bronze.where("attempt_no is not null").count()
    found = attempts.count()
    latest = silver.latest_life(pieces(bronze)).agg(F.coalesce(F.sum("attempts"), F.lit(0))).collect()[0][0]
    counted = jobs.agg(F.coalesce(F.sum("attempts"), F.lit(0))).collect()[0][0]
    return [
        _none("one settle per lease", leases.where("count > 1").count(), "leases settled more than once"),
        _none("no row twice", places.where("count > 1").count(), "places of the feed that are there more than once"),
        _none("one row per job", rows_of_jobs.where("count > 1").count(), "jobs with more than one row"),
        _none("no lost id", lost, "jobs of the feed that silver does not know"),
        Check("attempts in silver", found == wanted, wanted, found, "attempts"),
        Check("attempts of jobs", counted == latest, latest, counted, "attempts, added up over jobs"),
    ]


def _tables(spark: SparkSession, lake: Lake) -> list[DataFrame]:
    """Bronze, attempts and jobs; of a small lake, read here."""
    specs = (BRONZE_HISTORY, SILVER_ATTEMPTS, SILVER_JOBS)
    files = [delta.files_of(delta.open_table(lake, spec), spec) for spec in specs]
    if all(few_rows.are_few(each) for each in files):
        return [few_rows.frame(spark, lake, spec, each) for spec, each in zip(specs, files, strict=True)]
    return [delta.frame(spark, lake, spec, each) for spec, each in zip(specs, files, strict=True)]


def pieces(bronze: DataFrame) -> DataFrame:
    """What tells the lives of an id apart."""
    from pyspark.sql import functions as F

    attempts = F.col("attempt_no").isNotNull().cast("long").alias("attempts")
    deliveries = F.col("delivery").alias("deliveries")
    return bronze.select("store_id", "job_id", "seq_no", "status", "created_at", attempts, deliveries)


def _none(name: str, found: int, detail: str) -> Check:
    return Check(name, found == 0, 0, found, detail)
