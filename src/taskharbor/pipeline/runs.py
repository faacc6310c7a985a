"""Runs: feed → bronze → silver → gold, batch after batch, by one run at a time."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.carrying import ORIGIN
from taskharbor.core.errors import InvalidInput, StoreUnavailable
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.opening import open_driver, redacted
from taskharbor.pipeline import bronze, delta
from taskharbor.pipeline.bronze import SMALL_ROWS, Batch
from taskharbor.pipeline.lake import Lake, LakeError
from taskharbor.pipeline.lake_schemas import GOLD_AUDIT
from taskharbor.pipeline.lock import LakeLock
from taskharbor.pipeline.own_session import own_session, tune
from taskharbor.pipeline.quality import Check, QualityFailed
from taskharbor.pipeline.slo import DEFAULT, Objective, read_objectives
from taskharbor.pipeline.steps import Steps
from taskharbor.pipeline.store import PipelineStore, open_store
from taskharbor.pipeline.upkeep import EVERY_BATCHES, sweep, upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_ROWS: Final = 2_000_000
"""Of one batch: a long history comes in several, and a run that is killed goes on behind the last."""

Progress = Callable[[str], None]


@dataclass
class RunReport:
    """What a run did."""

    run_id: str
    store_id: str
    lake: str
    started_at: str
    ended_at: str = ""
    seconds: float = 0.0
    batches: int = 0
    rows: int = 0
    """New in the lake; `attempts` of them are attempts, `finished` ended their jobs, `rejected` could not be used."""
    attempts: int = 0
    finished: int = 0
    rejected: int = 0
    recovered: bool = False
    """Whether it first brought a batch through that an earlier run had left half-way."""
    beside: list[str] = field(default_factory=list)
    """The other stores whose history the lake has, if this run was the first to bring that of its store there."""
    last_batch: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    failed: str = ""

    def data(self) -> dict[str, Any]:
        return asdict(self)


def run(
    url: str,
    lake: str | Path,
    *,
    spark: SparkSession | None = None,
    max_rows: int | None = None,
    slo: str | Path | None = None,
    reject_bad: bool = False,
    progress: Progress | None = None,
) -> RunReport:
    """Bring everything that has ended since the last run into the lake, exactly once.

    It may be killed at any moment: the next run goes on from what was committed. A second run at the same time raises
    LakeLocked. A batch that does not pass its checks raises QualityFailed, and gold stays as it was.
    `max_rows` bounds each batch, not the run. With `reject_bad`, rows that a check would stumble over go to
    silver/rejects, and the run goes on without them.
    """
    with _runner(url, lake, spark, max_rows, slo, progress, reject_bad=reject_bad) as runner:
        return runner.once()


def follow(
    url: str,
    lake: str | Path,
    *,
    spark: SparkSession | None = None,
    max_rows: int | None = None,
    slo: str | Path | None = None,
    reject_bad: bool = False,
    progress: Progress | None = None,
    every_s: float = 2.0,
    on_report: Callable[[RunReport], bool | None] | None = None,
) -> None:
    """Run again and again until `on_report` returns True, or the caller is interrupted.

    `on_report` hears of every round that brought something. A store that cannot be reached is waited for.
    """
    with _runner(url, lake, spark, max_rows, slo, progress, reject_bad=reject_bad) as runner:
        wait_s = every_s
        while True:
            try:
                report = runner.once()
            except StoreUnavailable as error:
                wait_s = min(wait_s * 2, 60.0)
                runner.progress(f"the store cannot be reached, again in {wait_s:.0f} s: {error}")
                runner.store.close()
                time.sleep(wait_s)
                continue
            wait_s = every_s
            if on_report is not None and report.batches and on_report(report):
                return
            time.sleep(every_s)


@contextmanager
def _runner(
    url: str,
    place: str | Path,
    spark: SparkSession | None,
    max_rows: int | None,
    slo: str | Path | None,
    progress: Progress | None,
    *,
    reject_bad: bool,
) -> Iterator[_Runner]:
    if max_rows is not None and max_rows < 1:
        raise InvalidInput(f"max_rows must be at least 1, got {max_rows}")
    lake = Lake(place)
    if lake.exists():
        lake.version()
    say = progress or (lambda _: None)
    with open_store(url) as store:
        store_id = store.store_id  # a store that cannot be reached is heard of before Spark starts
        with LakeLock(lake) as lock:
            lake.create()
            beside = _beside(lake, url, store_id)
            objectives = _objectives(lake, slo)
            if spark is None:
                from taskharbor.pipeline import session

                say("starting Spark")
                spark = session()
            own = own_session(spark)
            try:
                yield _Runner(
                    url, lake, store, store_id, own, lock, max_rows or MOST_ROWS, objectives, say, reject_bad, beside
                )
            finally:
                _make_active(spark)


def _beside(lake: Lake, url: str, store_id: str) -> list[str]:
    """The other stores of the lake, if this one is new there. Raises if the lake has the history of this one already:
    a store that was filled by a move has that of the one before it."""
    if delta.batch_of(lake, GOLD_AUDIT, store_id):
        return []
    others = [each for each in bronze.stores_of(lake) if each != store_id]
    if not others:
        return []
    driver = open_driver(url)
    try:
        note = driver.carrier().note(ORIGIN) if isinstance(driver, BaseDriver) else None
    finally:
        driver.close()
    origin = json.loads(note) if note else {"store_id": None, "before": []}
    if {origin["store_id"], *origin["before"]} & set(others):
        raise LakeError(
            f"{redacted(url)} was moved from a store whose history the lake {lake.root} has: it would be there twice. "
            "Give the new store a lake of its own: all of the history is in it, from the beginning"
        )
    return others


def _objectives(lake: Lake, slo: str | Path | None) -> tuple[Objective, ...]:
    if slo is not None:
        return read_objectives(Path(slo))
    usual = lake.home / "slo.toml"
    return read_objectives(usual) if usual.exists() else DEFAULT


def _make_active(spark: SparkSession) -> None:
    """Spark looks formats up in the session that made a DataFrame last, and ours does not know those of the caller."""
    with suppress(Exception):  # Spark may have ended meanwhile
        spark.createDataFrame([], "nothing int")


@dataclass
class _Runner:
    url: str
    lake: Lake
    store: PipelineStore
    store_id: str
    spark: SparkSession
    lock: LakeLock
    max_rows: int
    objectives: tuple[Objective, ...]
    progress: Progress
    reject_bad: bool
    beside: list[str]
    checked: bool = False

    def once(self) -> RunReport:
        """Everything that is there now."""
        began = time.monotonic()
        report = RunReport(uuid.uuid4().hex, self.store_id, str(self.lake.root), datetime.now(UTC).isoformat())
        last = bronze.last_batch(self.lake, self.store_id)
        report.last_batch = last.number if last else 0
        try:
            last = self._recover(last, report)
            frontier = None
            while True:
                with _timed(report, "bronze"):
                    planned = bronze.plan(self.store, last, self.max_rows, frontier)
                    if planned is None:
                        break
                    # Fixed for the run, so that it ends however busy the queue is.
                    batch, frontier = planned
                    self.progress(f"batch {batch.number}: bronze")
                    tune(self.spark, small=self.store.kind == "json" or self._is_small(batch))
                    self.lock.check()
                    done = bronze.ingest(
                        self.spark, self.lake, self.store, self.url, batch, report.run_id, self.lock.check
                    )
                if done is None:
                    break
                last = done
                self._carry(done, report)
        except BaseException as error:
            self.checked = False  # a batch may be half-way: the next round looks
            report.failed = str(error) or type(error).__name__
            if isinstance(error, QualityFailed):
                report.checks = list(error.checks)
            self._record(report, began)
            raise
        if report.batches:
            report.beside, self.beside = self.beside, []
        self._record(report, began)
        if last is not None and report.batches and last.number % EVERY_BATCHES == 0:
            self.progress("upkeep")
            with _timed(report, "upkeep"):
                kept = upkeep(self.lake)
            if kept.waits_for:
                self.progress(f"upkeep waits until a run has finished the batch of {', '.join(kept.waits_for)}")
        return report

    def _is_small(self, batch: Batch) -> bool:
        return self.store.ahead(batch.after, batch.upto, SMALL_ROWS) == batch.upto

    def _recover(self, last: Batch | None, report: RunReport) -> Batch | None:
        if self.checked:
            return last
        number = last.number if last else 0
        if last is not None and delta.batch_of(self.lake, GOLD_AUDIT, self.store_id) < number:
            self.progress(f"batch {number}: an earlier run left it half-way")
            sweep(self.lake, self.store_id, (number,))
            report.recovered = True
            tune(self.spark, small=last.rows <= SMALL_ROWS)
            self._carry(last, report)
        sweep(self.lake, self.store_id, (number + 1,))
        self.checked = True
        return last

    def _carry(self, batch: Batch, report: RunReport) -> None:
        def stage(name: str) -> None:
            self.progress(f"batch {batch.number}: {batch.rows:,} rows, {name}")

        with _timed(report, "silver and gold"):
            steps = Steps(
                self.spark,
                self.lake,
                self.store,
                batch,
                report.run_id,
                self.lock.check,
                self.objectives,
                stage,
                self.reject_bad,
            )
            report.checks = steps.carry()
        report.batches += 1
        report.last_batch = batch.number
        report.rows += batch.rows
        report.attempts += steps.profile["attempts"]
        report.finished += steps.profile["final"]
        report.rejected += steps.profile["rejected"]
        bronze.forget_plans(self.lake, batch)

    def _record(self, report: RunReport, began: float) -> None:
        report.ended_at = datetime.now(UTC).isoformat()
        report.seconds = round(time.monotonic() - began, 3)
        previous = self.lake.read_json("last_run.json")
        if report.batches or report.failed or not previous:
            self.lake.write_json("last_run.json", report.data())


@contextmanager
def _timed(report: RunReport, stage: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        report.stages[stage] = round(report.stages.get(stage, 0.0) + time.monotonic() - began, 3)
