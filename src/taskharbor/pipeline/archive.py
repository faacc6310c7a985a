"""The archive: finished jobs that the lake has for sure are pruned from the store, in small batches.

What is about to go is compared with the lake row by row and written down in a manifest before the first job goes. An
archive may be killed at any moment; the next one verifies what is left, and finishes it. Jobs in the DLQ are not over,
and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.drivers.opening import open_driver
from taskharbor.pipeline import delta, few_rows, manifests
from taskharbor.pipeline.archive_plan import MOST_JOBS, ArchiveRefused, Due, due_jobs
from taskharbor.pipeline.archive_verify import verify
from taskharbor.pipeline.bronze import SMALL_ROWS
from taskharbor.pipeline.imports.door import Door, open_door
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY
from taskharbor.pipeline.lock import LakeLock
from taskharbor.pipeline.manifests import PLANNED, PRUNING, VERIFIED, Manifest
from taskharbor.pipeline.own_session import own_session, tune
from taskharbor.pipeline.store import PipelineStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK: Final = "archived.json"
"""By store, what the lake has for sure: jobs that ended before a moment, if their rows lie at or before a cursor of the
feed. Workers prune nothing else."""
BATCH_JOBS: Final = 1_000

Progress = Callable[[str], None]
Counted = Callable[[int, int], None]
"""Hears how many jobs have just been dealt with, and how many there are in all."""


def tell_nobody(count: int, total: int) -> None:
    pass


def archive_point(name: str) -> None:
    """Called at each step of an archive. Tests put a death in its place."""


@dataclass
class ArchiveReport:
    """What an archive did."""

    store_id: str
    lake: str
    before: str
    jobs: int = 0
    """That the lake has for sure and that are due: pruned now, or to be pruned after a dry run."""
    rows: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    days: list[dict[str, Any]] = field(default_factory=list)
    pruned: int = 0
    left: int = 0
    finished: list[str] = field(default_factory=list)
    """Manifests of earlier archives that were interrupted, and that this one has finished."""
    manifests: list[str] = field(default_factory=list)
    dry_run: bool = False

    def data(self) -> dict[str, Any]:
        return asdict(self)


def archive(
    url: str,
    lake: str | Path,
    *,
    older_than: timedelta,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    batch: int = BATCH_JOBS,
    progress: Progress | None = None,
    on_pruned: Counted | None = None,
    now: datetime | None = None,
    most: int = MOST_JOBS,
) -> ArchiveReport:
    """Prune the jobs that ended longer ago than `older_than` (by the store's clock, unless `now` is given), once every
    row of theirs has been found in the lake. Raises ArchiveRefused, with nothing pruned, where one has not."""
    if older_than < timedelta(0):
        raise InvalidInput(f"older_than must not be negative, got {older_than}")
    if batch < 1 or most < 1:
        raise InvalidInput("a batch has at least one job")
    with opened(url, lake, spark, progress) as desk:
        before = (now or desk.driver.now()) - older_than
        archiver = _Archiver(desk, url, before, batch, most, on_pruned or tell_nobody)
        return archiver.rehearse() if dry_run else archiver.run()


@dataclass
class Desk:
    """What an archive and a restore work with; the lake is locked."""

    spark: SparkSession
    lake: Lake
    store: PipelineStore
    driver: Driver
    door: Door
    lock: LakeLock
    say: Progress


@contextmanager
def opened(url: str, place: str | Path, spark: SparkSession | None, progress: Progress | None) -> Iterator[Desk]:
    lake = Lake(place)
    lake.check()
    say = progress or (lambda _: None)
    with open_store(url) as store, closing(open_driver(url)) as driver:
        door = open_door(driver)
        _ = store.store_id  # a store that cannot be reached is heard of before Spark starts
        with LakeLock(lake) as lock:
            lake.create()  # brings an older lake up to date
            if spark is None:
                from taskharbor.pipeline import session

                say("starting Spark")
                spark = session()
            own = own_session(spark)
            tune(own, small=_are_small(store, lake))
            yield Desk(own, lake, store, driver, door, lock, say)


def _are_small(store: PipelineStore, lake: Lake) -> bool:
    """Whether both have no more than a run would call a small batch."""
    upto = store.frontier()
    if not few_rows.are_few(delta.files_of(delta.open_table(lake, BRONZE_HISTORY), BRONZE_HISTORY)):
        return False
    return store.ahead(None, upto, SMALL_ROWS) == upto


@dataclass
class _Archiver:
    desk: Desk
    url: str
    before: datetime
    batch: int
    most: int
    on_pruned: Counted

    def rehearse(self) -> ArchiveReport:
        """Everything but the pruning; nothing is written."""
        report = self._report()
        report.dry_run = True
        due = self._due(self.before)
        self._count(report, due, self._verified(due) if len(due) else [])
        return report

    def run(self) -> ArchiveReport:
        report = self._report()
        lake, store_id = self.desk.lake, self.desk.store.store_id
        for manifest in manifests.unfinished(lake, store_id):
            if manifest.state == PLANNED:
                manifests.remove(lake, manifest)  # nothing came of it, and a new one takes its place
            else:
                self._finish(manifest, report)
        while True:
            due = self._due(self.before)
            if not len(due):
                self._mark(due.upto)
                return report
            manifest = manifests.new_manifest(store_id, self.before, due.upto)
            self._archive(manifest, due, report)
            if due.complete:
                return report

    def _archive(self, manifest: Manifest, due: Due, report: ArchiveReport) -> None:
        lake = self.desk.lake
        manifest.jobs, manifest.by_status = len(due), due.by_status()
        manifest.first, manifest.last = due.first, due.last
        manifests.save(lake, manifest, PLANNED)
        archive_point("planned")
        try:
            manifest.slices = self._verified(due)
        except ArchiveRefused as error:
            manifest.problem = str(error)
            manifests.save(lake, manifest)
            raise
        manifest.rows = sum(each.store.rows for each in manifest.slices)
        self.desk.lock.check()
        manifests.save(lake, manifest, VERIFIED)
        archive_point("verified")
        if due.complete:
            self._mark(due.upto)
        self._count(report, due, manifest.slices)
        report.manifests.append(manifest.id)
        self._prune(manifest, due, report)

    def _finish(self, manifest: Manifest, report: ArchiveReport) -> None:
        """What an archive that was interrupted has left, verified again."""
        self.desk.say(f"finishing {manifest.id}, which was interrupted")
        due = self._due(datetime.fromisoformat(manifest.before), end=manifest.last)
        slices = self._verified(due) if len(due) else []
        self._count(report, due, slices)
        report.finished.append(manifest.id)
        self._prune(manifest, due, report)

    def _prune(self, manifest: Manifest, due: Due, report: ArchiveReport) -> None:
        lake, before = self.desk.lake, datetime.fromisoformat(manifest.before)
        self.desk.lock.check()
        manifests.save(lake, manifest, PRUNING)
        archive_point("pruning")
        for ids in due.ids(self.batch):
            self.desk.lock.check()
            gone = self.desk.driver.prune(before, limit=len(ids), ids=ids, upto=due.upto)
            # Fewer went than were asked for when somebody else prunes too, or when one is not over any more.
            left = len(self.desk.door.known(ids)) if gone < len(ids) else 0
            manifest.left += left
            report.left += left
            report.pruned += gone
            self.on_pruned(len(ids), len(due))
            archive_point("pruned")
        manifest.pruned = manifest.jobs - manifest.left
        manifests.save(lake, manifest, manifests.DONE)
        archive_point("done")

    def _due(self, before: datetime, end: str | None = None) -> Due:
        self.desk.say("looking for what is due")
        desk = self.desk
        return due_jobs(desk.spark, desk.lake, desk.store, self.url, before, end=end, most=self.most)

    def _verified(self, due: Due) -> list[manifests.Slice]:
        self.desk.say(f"verifying {len(due):,} jobs")
        return verify(self.desk.spark, self.desk.lake, self.desk.store, self.url, due)

    def _mark(self, upto: str) -> None:
        """Tell workers what the lake has for sure; it never becomes less."""
        lake, store_id = self.desk.lake, self.desk.store.store_id
        marks = lake.read_json(MARK)
        mark = marks.get(store_id)
        # One that is a time alone was made by an older TaskHarbor, and vouches for nothing.
        known = mark.get("before") if isinstance(mark, dict) else None
        if known is None or datetime.fromisoformat(known) <= self.before:
            self.desk.lock.check()
            lake.write_json(MARK, {**marks, store_id: {"before": self.before.isoformat(), "upto": upto}})
        archive_point("marked")

    def _report(self) -> ArchiveReport:
        desk = self.desk
        return ArchiveReport(desk.store.store_id, str(desk.lake.root), self.before.isoformat())

    @staticmethod
    def _count(report: ArchiveReport, due: Due, slices: list[manifests.Slice]) -> None:
        report.jobs += len(due)
        report.rows += sum(each.store.rows for each in slices)
        for name, count in due.by_status().items():
            report.by_status[name] = report.by_status.get(name, 0) + count
        report.days += [asdict(each) for each in slices]
