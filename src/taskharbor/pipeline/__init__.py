"""What Spark does: the data source and sink, the lake, reports, importers, Spark workers.

    from taskharbor.pipeline import session
    spark = session()
    spark.read.format("taskharbor").options(url="sqlite:///jobs.db", table="attempts").load()

Nothing here is imported with `taskharbor` itself, and importing this package opens nothing and needs no extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from taskharbor.pipeline.imports.run import ImportReport
    from taskharbor.pipeline.report_numbers import Report
    from taskharbor.pipeline.runs import RunReport
    from taskharbor.pipeline.sink import LoadReport
    from taskharbor.pipeline.work_report import WorkReport

__all__ = ["follow", "import_jobs", "load", "register", "report", "run", "session", "work"]


def session(master: str = "local[*]", **config: Any) -> SparkSession:
    """A SparkSession on `master` with the data source registered, Java found and settings that fit.

    Keywords are Spark settings with underscores for dots, `spark_` in front or not: `driver_memory="4g"`. Settings
    whose names hold capitals or a dot can be given as `**{"spark.sql.shuffle.partitions": 8}`. A session that runs
    already is used as it is, with the settings that can still be changed.
    """
    from taskharbor.pipeline.sessions import start

    return start(master, **config)


def register(spark: SparkSession) -> SparkSession:
    """Teach a session of your own the format `taskharbor`; returns it."""
    from taskharbor.pipeline.sessions import teach

    return teach(spark)


def run(
    url: str, lake: str | Path, *, spark: SparkSession | None = None, max_rows: int | None = None, **options: Any
) -> RunReport:
    """Bring everything that has ended since the last run into the lake, exactly once. Options: `slo`, a TOML file with
    objectives, and `progress`, which is called with each stage. See `taskharbor.pipeline.runs`."""
    from taskharbor.pipeline import runs

    return runs.run(url, lake, spark=spark, max_rows=max_rows, **options)


def follow(
    url: str, lake: str | Path, *, spark: SparkSession | None = None, max_rows: int | None = None, **options: Any
) -> None:
    """Run again and again. Options: those of `run`, `every_s`, and `on_report`, which ends it by returning True."""
    from taskharbor.pipeline import runs

    runs.follow(url, lake, spark=spark, max_rows=max_rows, **options)


def load(source: DataFrame | str, url: str, **options: Any) -> LoadReport:
    """Make a job of each row of a DataFrame, of files, of a table or of a query, exactly once. Options: `type`,
    `queue`, `key` and so on, `mapping`, `rejects`, `lake`, `failfast`, `dry_run`. See `taskharbor.pipeline.loading`."""
    from taskharbor.pipeline import loading

    return loading.load(source, url, **options)


def import_jobs(format: str, source: str, url: str, **options: Any) -> ImportReport:
    """Take over the jobs of another system with their state and history; again changes nothing. `format` is one of
    taskharbor-go, jobs-json, mq-sql and task-orchestrator. See `taskharbor.pipeline.imports.run`."""
    from taskharbor.pipeline.imports.run import import_jobs as import_them

    return import_them(format, source, url, **options)


def work(app: str, queues: str | Sequence[str], *, slots: int, **options: Any) -> WorkReport:
    """Run jobs on Spark's executors until nothing is left that is due. `app` names the Harbor, `module:harbor`.
    Options: `for_s`, `url`, `spark` or `master`, `tasks`, `py_files`, `lease_s`, `grace_s`, `stop`, `progress`. See
    `taskharbor.pipeline.work_run`."""
    from taskharbor.pipeline import work_run

    return work_run.work(app, queues, slots=slots, **options)


def report(lake: str | Path, **options: Any) -> Report:
    """What a lake knows, in numbers, without Spark. Options: `since`, a time, a length of time before now, or None for
    everything (7 days if left out), and `url`, a store to tell the lag of. `taskharbor.pipeline.report_html.page` makes
    a page of it. See `taskharbor.pipeline.reports`."""
    from taskharbor.pipeline import reports

    return reports.report(lake, **options)
