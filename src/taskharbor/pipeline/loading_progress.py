"""How far a load has come. Spark knows the parts that have ended; the rows, executors note in files of a directory that
`load` makes and removes, which the driver sees where both are on one machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from taskharbor.core.ids import new_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 0.5


class LoadProgress(NamedTuple):
    """What has been staged so far."""

    rows: int
    """Zero where executors are on other machines."""
    total: int | None
    """How many rows there are, where the source says so."""
    parts: int
    all_parts: int

    @property
    def staged(self) -> bool:
        """Whether all of it is staged, so that the store publishes it now."""
        return 0 < self.all_parts == self.parts


Tell = Callable[[LoadProgress], None]


def note(place: str | None, attempt: str, rows: int) -> None:
    """On an executor: so many rows has this attempt of a task done."""
    if place:
        with suppress(OSError):  # on another machine there is no such place
            (Path(place) / f"{attempt}.rows").write_text(str(rows))


def noted(place: Path) -> int:
    rows = 0
    for path in place.glob("*.rows"):
        with suppress(OSError, ValueError):  # one that is being written
            rows += int(path.read_text())
    return rows


@contextmanager
def watched(spark: SparkSession, place: str, total: int | None, tell: Tell | None) -> Iterator[None]:
    """Tell, from a thread of its own, how far the jobs of Spark have come that this thread starts within."""
    tag = f"taskharbor-{new_id()}"
    context = None
    with suppress(Exception):  # a session of Spark Connect has none
        context = spark.sparkContext if tell is not None else None
    if context is None or tell is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_look, args=(context, tag, Path(place), total, tell, ended), name="taskharbor-progress"
    )
    context.addJobTag(tag)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        context.removeJobTag(tag)


def _look(context: Any, tag: str, place: Path, total: int | None, tell: Tell, ended: threading.Event) -> None:
    tracker, java = context.statusTracker(), context._jsc.sc().statusTracker()
    over = False
    while not over:
        over = ended.wait(LOOK_S)
        with suppress(Exception):  # a question that Spark does not answer is asked again
            jobs = [tracker.getJobInfo(job) for job in java.getJobIdsForTag(tag)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            last = max((stage for stage in stages if stage), key=lambda stage: stage.stageId, default=None)
            if last is not None:
                rows = noted(place)  # of a task that Spark tried again, both tries have noted theirs
                rows = rows if total is None else min(rows, total)
                tell(LoadProgress(rows, total, last.numCompletedTasks, last.numTasks))
