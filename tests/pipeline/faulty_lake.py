"""Runs into a lake, and loads, that break at the worst moments. Run as `python -m`.

The executors' half of bronze is replaced by one that does its work and then fails, or dies, or takes its time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from tests.pipeline.faulty import kill_executor, load_all, started

from taskharbor.pipeline import bronze, run, runs
from taskharbor.pipeline.bronze import write_ranges as write_well

FAULTS = ("task fails", "executor dies", "task is slow")
"""The last is run twice, because speculation is on."""


class FaultyRanges:
    """`bronze.write_ranges`, after which the first attempt of the first task meets with `fault`, once."""

    def __init__(self, fault: str, marks: str) -> None:
        self.fault, self.marks = fault, marks

    def __call__(self, store: Any, ranges: Sequence[Any], root: str, tag: str) -> Any:
        files = write_well(store, ranges, root, tag)
        context = TaskContext.get()
        assert context is not None, "the executors' way was to be taken"
        place = Path(self.marks)
        (place / f"p{context.partitionId()}-{context.taskAttemptId()}").touch()
        if context.partitionId() == 0 and context.attemptNumber() == 0 and not (place / "struck").exists():
            (place / "struck").touch()
            if self.fault == "task fails":
                raise RuntimeError("failed after its write")
            if self.fault == "executor dies":
                kill_executor()
            if self.fault == "task is slow":
                time.sleep(60)
        return files


def executors(application: str) -> list[int]:
    """The executors of an application on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words) and application.encode() in words:
            found.append(int(path.parent.name))
    return found


def main(master: str, marks: str, *places: str) -> None:
    """With each fault in turn: a run of a store's history into a lake, then a load into another store. With the fault
    `executor dies`, another executor is killed when the run has come to gold."""
    bronze.SMALL_ROWS = runs.SMALL_ROWS = 5  # type: ignore[misc]
    spark = started(master)
    for number, fault in enumerate(FAULTS):
        url, lake, load_url = places[3 * number : 3 * number + 3]
        _meet(spark, fault, Path(marks) / fault, url, lake, load_url)
    spark.stop()


def _meet(spark: Any, fault: str, marks: Path, url: str, lake: str, load_url: str) -> None:
    running, loading = marks / "run", marks / "load"
    for place in (running, loading):
        place.mkdir(parents=True)
    bronze.write_ranges = FaultyRanges(fault, str(running))  # type: ignore[assignment]

    def progress(stage: str) -> None:
        if fault == "executor dies" and stage.endswith("gold"):
            os.kill(executors(spark.sparkContext.applicationId)[0], signal.SIGKILL)
            (running / "struck again").touch()

    run(url, lake, spark=spark, progress=progress)
    load_all(spark, "300", fault, str(loading), "-", load_url)


if __name__ == "__main__":
    main(*sys.argv[1:])
