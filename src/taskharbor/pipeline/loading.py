"""Any data that Spark reads, as jobs: `load(df_or_source, url, type="email.send", key="order_id")`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.clock import EPOCH, utc_now
from taskharbor.core.errors import InvalidInput, TaskHarborError
from taskharbor.core.ids import new_id
from taskharbor.pipeline.sink import LoadReport
from taskharbor.pipeline.sink_options import Plan, plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_REJECTS: Final = "taskharbor-rejects"
FORMATS: Final = ("parquet", "csv", "json", "orc", "delta", "table", "sql")
_BY_SUFFIX: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".orc": "orc",
}  # fmt: skip


class SourceUnreadable(TaskHarborError):
    """Spark cannot read the source. The message says why."""


def load(
    source: DataFrame | str,
    url: str,
    *,
    spark: SparkSession | None = None,
    format: str | None = None,
    reading: Mapping[str, str] | None = None,
    mapping: Mapping[str, str] | None = None,
    rejects: str | None = None,
    lake: str | None = None,
    failfast: bool = False,
    dry_run: bool = False,
    **options: Any,
) -> LoadReport:
    """Make a job of each row, exactly once: rows that were loaded before are counted as duplicates.

    `source` is a DataFrame, or what `format` reads: the path of Parquet, CSV, JSON, ORC or Delta data, the name of a
    table, or a query in SQL; `reading` are options for the reader. `mapping` gives columns other names, new to old.
    `options` are those of the sink: type, queue, tenant_id, priority, run_at, expires_at, max_attempts, timeout, meta,
    key, unique, run. Refused rows go to `rejects`, or to the `lake`, or to the directory taskharbor-rejects here; with
    `failfast` the first one ends the load and nothing is loaded. With `dry_run` rows are checked and nothing is kept.
    """
    frame = source if not isinstance(source, str) else read(_session(spark), source, format, reading)
    frame = renamed(frame, mapping or {})
    name = source if isinstance(source, str) else "DataFrame"
    settings = {key: _text(value) for key, value in options.items() if value is not None}
    settings |= {"url": url, "source": name, "mode": "failfast" if failfast else "keep"}
    if not failfast:
        settings |= {"rejects": rejects} if rejects else {"lake": lake} if lake else {"rejects": DEFAULT_REJECTS}
    checked = plan(settings, frame.schema, new_id())  # before Spark starts anything, and in this process
    _check_store(url, create=not dry_run)
    if dry_run:
        return rehearse(frame, checked)
    with tempfile.TemporaryDirectory(prefix="taskharbor-") as place:
        settings["report"] = str(Path(place) / "report.json")
        try:
            frame.write.format("taskharbor").mode("append").options(**settings).save()
        except Exception as error:
            raise _in_our_words(error) from error
        return LoadReport(**json.loads(Path(settings["report"]).read_text("utf-8")))


def read(spark: SparkSession, source: str, format: str | None, reading: Mapping[str, str] | None = None) -> DataFrame:
    """The source as a DataFrame. Of CSV, the first line has the names, and columns are text unless `inferSchema`."""
    kind = format or guess_format(source)
    if kind not in FORMATS:
        raise InvalidInput(f"unknown format {kind!r}: use one of {', '.join(FORMATS)}")
    options = dict(reading or {})
    if kind == "csv":
        options = {
            "header": "true",
            "mode": "FAILFAST",
            **({"sep": "\t"} if source.endswith(".tsv") else {}),
            **options,
        }
    if kind == "json":
        options = {"mode": "FAILFAST", **options}
    try:
        if kind == "sql":
            return spark.sql(source)
        if kind == "table":
            return spark.table(source)
        if kind == "delta":
            from taskharbor.pipeline.delta import read as read_delta

            frame: DataFrame = read_delta(spark, source)
            return frame
        return spark.read.format(kind).options(**options).load(source)
    except Exception as error:
        raise SourceUnreadable(f"cannot read {source} as {kind}: {_first_line(error)}") from error


def guess_format(source: str) -> str:
    path = Path(source)
    if (path / "_delta_log").is_dir():
        return "delta"
    names = [path.name, *(child.name for child in sorted(path.iterdir())[:100])] if path.is_dir() else [path.name]
    for name in names:
        for suffix, kind in _BY_SUFFIX.items():
            if name.removesuffix(".gz").endswith(suffix):
                return kind
    if source.lstrip().lower().startswith(("select ", "with ")):
        return "sql"
    raise InvalidInput(f"cannot tell what {source} is: give the format, one of {', '.join(FORMATS)}")


def renamed(frame: DataFrame, mapping: Mapping[str, str]) -> DataFrame:
    """The frame with columns under new names: `{"tenant_id": "customer"}` makes customer the tenant."""
    missing = [old for old in mapping.values() if old not in frame.columns]
    if missing:
        raise InvalidInput(f"there is no column {missing[0]!r} to map: the source has {', '.join(frame.columns)}")
    taken = [new for new, old in mapping.items() if new in frame.columns and new != old]
    if taken:
        raise InvalidInput(f"there is a column {taken[0]!r} already: map another one to it, or rename it")
    for new, old in mapping.items():
        frame = frame.withColumnRenamed(old, new)
    return frame


def rehearse(frame: DataFrame, plan: Plan) -> LoadReport:
    """The counts of a load that keeps nothing: every row is checked as it would be, keys are not looked up."""
    from pyspark.sql.types import LongType, StructField, StructType

    identity = plan.identity

    def check(batches: Any) -> Any:
        import pyarrow as pa

        from taskharbor.pipeline.sink_rows import check_batch

        for batch in batches:
            checked = check_batch(batch, plan, identity, EPOCH)
            counts = [pa.array([checked.rows], pa.int64()), pa.array([len(checked.rejects)], pa.int64())]
            yield pa.record_batch(counts, names=["good", "bad"])

    shape = StructType([StructField("good", LongType()), StructField("bad", LongType())])
    try:
        rows = frame.mapInArrow(check, shape).collect()
    except Exception as error:
        raise _in_our_words(error) from error
    good, bad = sum(row.good for row in rows), sum(row.bad for row in rows)
    return LoadReport("dry run", good + bad, good, 0, bad)


def sweep(url: str, older_than: datetime | None = None) -> int:
    """Remove what failed loads left staged, by default what is older than a day; how much that was."""
    from pyspark.sql.types import StructType

    from taskharbor.pipeline.staging import LEFT_BEHIND, open_staging

    before = older_than or utc_now() - LEFT_BEHIND
    return open_staging(plan({"url": url, "type": "-"}, StructType([]), None)).sweep(before)


def _check_store(url: str, *, create: bool) -> None:
    """Say what is wrong with the store before Spark begins; make an embedded one that is not there yet."""
    from taskharbor.core.errors import SchemaMissing
    from taskharbor.drivers.opening import open_driver, parse_url

    with closing(open_driver(url)) as driver:
        try:
            driver.queues()
        except SchemaMissing:
            if parse_url(url).scheme not in ("sqlite", "json"):
                raise
            if create:
                driver.migrate()


def _session(spark: SparkSession | None) -> SparkSession:
    if spark is not None:
        return spark
    from taskharbor.pipeline import session

    return session()


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _in_our_words(error: Exception) -> TaskHarborError:
    """Spark wraps what happened on an executor or in a commit in pages of traces; the last line of ours says it."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("taskharbor.") and ": " in line]
    if ours:
        kind, _, said = ours[-1].partition(": ")
        from taskharbor.core import errors

        found = getattr(errors, kind.rpartition(".")[2], None)
        if isinstance(found, type) and issubclass(found, TaskHarborError):
            return found(said)
        return TaskHarborError(said)
    return SourceUnreadable(f"the load failed and nothing was published: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
