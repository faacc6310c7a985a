"""Any data that Spark reads, as jobs: `load(df_or_source, url, type="email.send", key="order_id")`."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from taskharbor.core.clock import EPOCH, utc_now
from taskharbor.core.errors import InvalidInput, TaskHarborError
from taskharbor.core.ids import new_id
from taskharbor.pipeline import loading_sources as sources
from taskharbor.pipeline import spark_log
from taskharbor.pipeline.loading_progress import LoadProgress, note, watched
from taskharbor.pipeline.loading_sources import FORMATS, SourceUnreadable, guess_format
from taskharbor.pipeline.loading_tasks import check_arguments, decimals, rules_of, task_of
from taskharbor.pipeline.sessions import activate
from taskharbor.pipeline.sink import LoadReport
from taskharbor.pipeline.sink_options import AS_KEYWORDS, Plan, Words, key_columns, no_type, plan, tasks_text
from taskharbor.pipeline.staging import LEFT_BEHIND, open_staging, ready

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taskharbor.app import Harbor

T = TypeVar("T")

__all__ = ["FORMATS", "LoadProgress", "SourceUnreadable", "guess_format", "load", "read", "renamed", "sweep"]

DEFAULT_REJECTS: Final = "taskharbor-rejects"
_NAME: Final = re.compile(r"[\w.]+")
_MALFORMED: Final = re.compile(r"(?i)malformed|corrupt|FAILED_READ_FILE")


def load(
    source: DataFrame | str,
    url: str,
    *,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    format: str | None = None,
    reading: Mapping[str, str] | None = None,
    mapping: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    harbor: Harbor | None = None,
    check: bool = True,
    omit_nulls: bool = False,
    rejects: str | None = None,
    lake: str | None = None,
    failfast: bool = False,
    dry_run: bool = False,
    progress: Callable[[LoadProgress], None] | None = None,
    say: Callable[[str], None] | None = None,
    words: Words = AS_KEYWORDS,
    **options: Any,
) -> LoadReport:
    """Make a job of each row, exactly once: rows that were loaded before are counted as duplicates.

    `source` is a DataFrame, or what `format` reads: the path of Parquet, CSV, JSON, ORC or Delta data, the name of a
    table, or a query in SQL; `reading` are options for the reader. `mapping` gives columns other names, new to old, or
    makes new ones of expressions in SQL; `columns` are those to take.
    `options` are those of the sink: type, queue, tenant_id, priority, run_at, expires_at, max_attempts, timeout, meta,
    key, unique, run. With a `harbor`, its tasks say what no option does, as for `harbor.enqueue`; their arguments must
    be there as columns (unless `check` is off), and a null for one that has a default is left out. `omit_nulls` leaves
    all nulls out. Refused rows go to `rejects`, or to the `lake`, or to the directory taskharbor-rejects here; with
    `failfast` the first one ends the load and nothing is loaded. With `dry_run` rows are checked and nothing is kept.
    """
    reading, mapping, name, kind = dict(reading or {}), dict(mapping or {}), "DataFrame", ""
    if isinstance(source, str):
        name, kind = source, sources.kind_of(source, format)
        sources.check_there(source, kind)
        known = sources.column_names(source, kind, reading)
        if known is not None:
            _check_names(known, mapping, columns, options, words)
    if harbor is not None and check and options.get("type") is not None:
        task_of(harbor, str(options["type"]), words)
    now = ready(url, create=False)  # like all of the above before Spark, which takes its time to start
    frame = source
    if isinstance(frame, str):
        spark = spark or _session(master, say)
        frame = read(spark, frame, kind, reading)
    frame = chosen(renamed(frame, mapping), columns)
    settings = {key: _text(value) for key, value in options.items() if value is not None}
    settings |= {"url": url, "source": name, "mode": "failfast" if failfast else "keep"}
    if omit_nulls:
        settings["nulls"] = "omit"
    if not failfast:
        settings |= {"rejects": rejects} if rejects else {"lake": lake} if lake else {"rejects": DEFAULT_REJECTS}
    checked = plan(settings, frame.schema, new_id(), words)
    if harbor is not None:
        frame = _with_numbers(harbor, checked, frame) if check else frame
        settings |= _by_the_tasks(harbor, checked, frame, words, now, check=check)
        checked = plan(settings, frame.schema, checked.run_id, words)
    activate(frame.sparkSession)
    total = sources.row_count(name, kind) if isinstance(source, str) and progress else None
    if not dry_run:
        ready(url)
    with tempfile.TemporaryDirectory(prefix="taskharbor-") as place:
        settings |= {"report": str(Path(place) / "report.json"), "progress": place}
        rehearsed = replace(checked, progress=place)
        with watched(frame.sparkSession, place, total, progress):
            if dry_run:
                return _in_words(lambda: rehearse(frame, rehearsed), name, kind, reading)
            writing = frame.write.format("taskharbor").mode("append").options(**settings)
            _in_words(writing.save, name, kind, reading)
        return LoadReport(**json.loads(Path(settings["report"]).read_text("utf-8")))


def _check_names(
    names: Sequence[str],
    mapping: Mapping[str, str],
    columns: Sequence[str] | None,
    options: Mapping[str, Any],
    words: Words,
) -> None:
    """What is wrong with the columns, as far as their names tell."""
    for old in mapping.values():
        if _NAME.fullmatch(old) and old not in names:
            raise _no_column(old, "to map", names)
    left = [name for name in names if name not in mapping.values()]
    there = [*left, *mapping]
    for name in columns or ():
        if name not in there:
            raise _no_column(name, "to take", there)
    there = [name for name in there if columns is None or name in columns]
    if options.get("type") is None and "type" not in there:
        raise no_type(words)
    key = options.get("key")
    key_columns(None if key is None else _text(key), there, words)


def _by_the_tasks(
    harbor: Harbor, checked: Plan, frame: DataFrame, words: Words, now: datetime, *, check: bool
) -> dict[str, str]:
    """What the application adds to the options."""
    if check and harbor.encryption is not None:
        raise InvalidInput(
            "the application encrypts what its jobs take, and a load does not: enqueue from the application, or give "
            f"{words.unchecked} to store it as it is"
        )
    name = None if "type" in checked.columns else checked.constants["type"]
    if name is not None and check:
        check_arguments(task_of(harbor, name, words), checked, frame.schema, words)
    if not check and (name is None or name not in harbor.tasks):
        return {}
    added = {"tasks": tasks_text(rules_of(harbor, checked, now))}
    if name is not None and checked.unique == ("tenant", "type"):
        added["unique"] = ",".join(harbor.tasks[name].unique)
    return added


def _with_numbers(harbor: Harbor, checked: Plan, frame: DataFrame) -> DataFrame:
    """The frame with decimals as the floats that the task takes them for."""
    task = None if "type" in checked.columns else harbor.tasks.get(checked.constants["type"])
    for name in decimals(task, checked, frame.schema) if task is not None else ():
        frame = frame.withColumn(name, frame[name].cast("double"))
    return frame


def read(spark: SparkSession, source: str, format: str | None, reading: Mapping[str, str] | None = None) -> DataFrame:
    """The source as a DataFrame. Of CSV, the first line has the names, and columns are text unless `inferSchema`."""
    kind = sources.kind_of(source, format)
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

    def reader() -> DataFrame:
        if kind == "sql":
            return spark.sql(source)
        if kind == "table":
            return spark.table(source)
        if kind == "delta":
            from taskharbor.pipeline.delta import read as read_delta

            frame: DataFrame = read_delta(spark, source)
            return frame
        return spark.read.format(kind).options(**options).load(source)

    return _in_words(reader, source, kind, options, f"cannot read {source} as {kind}")


def renamed(frame: DataFrame, mapping: Mapping[str, str]) -> DataFrame:
    """The frame with columns under new names: `{"tenant_id": "customer"}` makes customer the tenant. What is no name
    is an expression in SQL: `{"priority": "CAST(priority AS INT)"}`."""
    missing = [old for old in mapping.values() if _NAME.fullmatch(old) and old not in frame.columns]
    if missing:
        raise _no_column(missing[0], "to map", frame.columns)
    plain = {new: old for new, old in mapping.items() if old in frame.columns}
    taken = [new for new, old in plain.items() if new in frame.columns and new != old]
    if taken:
        raise InvalidInput(f"there is a column {taken[0]!r} already: map another one to it, or rename it")
    for new, old in mapping.items():
        if new in plain:
            frame = frame.withColumnRenamed(old, new)
            continue
        from pyspark.sql import functions

        try:
            frame = frame.withColumn(new, functions.expr(old))
        except Exception as error:
            said = spark_log.in_one_sentence(error)
            raise InvalidInput(f"the column {new} cannot be made of {old!r}: {said}") from error
    return frame


def chosen(frame: DataFrame, columns: Sequence[str] | None) -> DataFrame:
    if columns is None:
        return frame
    for name in columns:
        if name not in frame.columns:
            raise _no_column(name, "to take", frame.columns)
    return frame.select(*(f"`{name}`" for name in columns))


def _no_column(name: str, what: str, names: Sequence[str]) -> InvalidInput:
    return InvalidInput(f"there is no column {name!r} {what}: the source has {', '.join(names)}")


def rehearse(frame: DataFrame, plan: Plan) -> LoadReport:
    """The counts of a load that keeps nothing: every row is checked as it would be, keys are not looked up."""
    from pyspark.sql.types import LongType, StructField, StructType

    identity = plan.identity

    def check(batches: Any) -> Any:
        import pyarrow as pa

        from taskharbor.pipeline.sink_rows import check_batch

        part, rows = new_id(), 0
        for batch in batches:
            checked = check_batch(batch, plan, identity, EPOCH)
            rows += batch.num_rows
            note(plan.progress, part, rows)
            counts = [pa.array([checked.rows], pa.int64()), pa.array([len(checked.rejects)], pa.int64())]
            yield pa.record_batch(counts, names=["good", "bad"])

    shape = StructType([StructField("good", LongType()), StructField("bad", LongType())])
    rows = frame.mapInArrow(check, shape).collect()
    good, bad = sum(row.good for row in rows), sum(row.bad for row in rows)
    return LoadReport("dry run", good + bad, good, 0, bad)


def sweep(url: str, older_than: datetime | None = None) -> int:
    """Remove what failed loads left staged, by default what is older than a day; how much that was."""
    from pyspark.sql.types import StructType

    before = older_than or utc_now() - LEFT_BEHIND
    return open_staging(plan({"url": url, "type": "-"}, StructType([]), None)).sweep(before)


def _session(master: str, say: Callable[[str], None] | None) -> SparkSession:
    from taskharbor.pipeline import session

    if say is not None:
        say("starting Spark")
    return session(master)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _in_words(
    work: Callable[[], T], source: str, kind: str, reading: Mapping[str, str], failed: str = "nothing was loaded"
) -> T:
    """Do it; what goes wrong on an executor or in a commit, Spark wraps in pages of traces, and we say in a line."""
    try:
        return work()
    except TaskHarborError:
        raise
    except Exception as error:
        raise _in_our_words(error, source, kind, reading, failed) from error


def _in_our_words(error: Exception, source: str, kind: str, reading: Mapping[str, str], failed: str) -> TaskHarborError:
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith("taskharbor.") and ": " in line]
    if ours:
        name, _, said = ours[-1].partition(": ")
        from taskharbor.core import errors

        found = getattr(errors, name.rpartition(".")[2], None)
        if isinstance(found, type) and issubclass(found, TaskHarborError):
            return found(said)
        return TaskHarborError(said)
    if _MALFORMED.search(str(error)) and (bad := sources.culprit(source, kind, reading)):
        return SourceUnreadable(
            f"{failed}: {bad}: mend the line, or have Spark pass such lines over, uncounted, with the reader's option "
            "mode=DROPMALFORMED (--option mode=DROPMALFORMED)"
        )
    return SourceUnreadable(f"{failed}: {spark_log.in_one_sentence(error)}{spark_log.hint()}")
