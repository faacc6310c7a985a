"""Runs into a lake, and loads, that break at the worst moments. Run as `python -m`.

The executors' half of bronze is replaced by one that does its work and then fails, or dies, or takes its time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from tests.pipeline.faulty import FAULTS, load_all, meet, started

from taskharbor.pipeline import bronze, run, runs
from taskharbor.pipeline.bronze import write_ranges as write_well

PARTS = 4
"""Of the run and of the load: one for each fault, and one that meets with none."""


class FaultyRanges:
    """`bronze.write_ranges`, after which the first attempts of the first tasks meet with a fault, each with its own."""

    def __init__(self, marks: str) -> None:
        self.marks = marks

    def __call__(self, store: Any, ranges: Sequence[Any], root: str, tag: str) -> Any:
        files = write_well(store, ranges, root, tag)
        context = TaskContext.get()
        assert context is not None, "the executors' way was to be taken"
        place = Path(self.marks)
        if context.partitionId() < len(FAULTS):
            fault = FAULTS[context.partitionId()]
            (place / f"{fault}-{context.taskAttemptId()}").touch()
            # Not by the number of the attempt alone: where a lost executor takes its shuffle along, the stage begins
            # anew, at 0.
            if context.attemptNumber() == 0 and not (place / f"struck: {fault}").exists():
                (place / f"struck: {fault}").touch()
                meet(fault, "write")
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


def main(master: str, marks: str, url: str, lake: str, load_url: str) -> None:
    """With all faults at once: a run of a store's history into a lake, then a load into another store. One executor
    more is killed when the run has come to gold."""
    bronze.SMALL_ROWS = runs.SMALL_ROWS = 5  # type: ignore[misc]
    spark = started(master)
    running, loading = Path(marks) / "run", Path(marks) / "load"
    for place in (running, loading):
        place.mkdir()
    bronze.write_ranges = FaultyRanges(str(running))  # type: ignore[assignment]

    def progress(stage: str) -> None:
        if stage.endswith("gold"):
            os.kill(executors(spark.sparkContext.applicationId)[0], signal.SIGKILL)
            (running / "struck again").touch()

    run(url, lake, spark=spark, progress=progress)
    load_all(spark, "300", "all", str(loading), "-", load_url, parts=PARTS)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
