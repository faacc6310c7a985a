"""One job of Spark, whose tasks are workers of the queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

from taskharbor.pipeline.work_task import Order, run_part

CANCEL_S: Final = 20.0
"""How long Spark has to end tasks that it was told to cancel."""


class Round:
    """One job of Spark: as many tasks as there are workers."""

    def __init__(self, context: Any, order: Order, group: str) -> None:
        self.ended = threading.Event()
        self.problem = ""
        self.failed = False
        """Spark gave up before every worker had come to its end."""
        self.refused = False
        """No worker could begin, for a reason that the next try would meet again."""
        self._context = context
        self._order = order
        self._group = group
        self._cancelled = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="taskharbor-spark", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled = True
        self._context.cancelJobGroup(self._group)
        self.ended.wait(CANCEL_S)

    def _run(self) -> None:
        order = self._order

        def part(index: int, _: object) -> Iterator[dict[str, str]]:
            return run_part(order, index)

        try:
            self._context.setJobGroup(self._group, f"taskharbor work {order.run}", interruptOnCancel=True)
            parts = len(order.slots)
            answers = self._context.parallelize(range(parts), parts).mapPartitionsWithIndex(part).collect()
            if answers:
                self.problem = f"{len(answers)} of {parts} workers could not work: {answers[0]['error']}"
                self.refused = len(answers) == parts
        except Exception as error:
            self.failed = True
            if not self._cancelled:
                self.problem = f"Spark lost the workers: {_reason(error)}"
        finally:
            self.ended.set()


def _reason(error: Exception) -> str:
    """What Spark says in pages, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(("ModuleNotFoundError:", "ImportError:")):
            return (
                f"{line}; executors need Python with taskharbor installed, the same version as here, and what the "
                "application imports: install it there, or ship it with --py-files"
            )
    for line in lines:
        if "Job aborted" in line or "SparkException" in line:
            return line[:300]
    return (lines or [type(error).__name__])[0][:300]
