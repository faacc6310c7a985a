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


def executors() -> list[int]:
    """The executors of this driver: children of its Java, which is ours."""
    below = [pid for java in _children(os.getpid()) for pid in _children(java)]
    return [pid for pid in below if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def main(master: str, fault: str, marks: str, url: str, lake: str, load_url: str) -> None:
    """A run of the store's history into the lake, then a load into another store; both with the fault. With the fault
    `executor dies`, another executor is killed when the run has come to gold."""
    bronze.SMALL_ROWS = runs.SMALL_ROWS = 5  # type: ignore[misc]
    places = [Path(marks) / name for name in ("run", "load")]
    for place in places:
        place.mkdir()
    bronze.write_ranges = FaultyRanges(fault, str(places[0]))  # type: ignore[assignment]
    spark = started(master)

    def progress(stage: str) -> None:
        if fault == "executor dies" and stage.endswith("gold"):
            os.kill(executors()[0], signal.SIGKILL)
            (places[0] / "struck again").touch()

    run(url, lake, spark=spark, progress=progress)
    load_all(spark, "300", fault, str(places[1]), "-", load_url)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
