"""Python's collector of cycles, while a worker runs.

By default it looks through all young objects whenever there are 700 more of them than before. A worker that fetches
jobs by the hundred has many thousands at a time, all of which are gone a moment later without its help: looking
through them took a tenth of the time of quick jobs. So it looks when there are many more, and, since cycles that
handlers leave behind may hold large things, once a second and whenever a certain size of payloads has come in.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from taskharbor.core.forking import renew_locks

MANY: Final = 10_000
"""More than the young objects of a worker's own jobs usually grow by at once."""
LOOK_S: Final = 1.0
HEAVY: Final = 32 * 1024 * 1024
"""Bytes of payloads."""

Thresholds = tuple[int, int, int]


class _Collector:
    """There is one to a process, and there may be several workers in one."""

    def __init__(self) -> None:
        self._workers = 0
        self._before: Thresholds | None = None
        """What is to be put back; None if nothing was changed."""
        self._chosen: Thresholds | None = None
        self._fetched = 0
        self._looked = 0.0
        self._lock = threading.Lock()
        renew_locks(self, "_lock")
        os.register_at_fork(after_in_child=self._in_child)

    def slow_down(self) -> None:
        with self._lock:
            self._workers += 1
            before = gc.get_threshold()
            if self._workers == 1 and 0 < before[0] < MANY:
                self._before, self._chosen = before, (MANY, *before[1:])
                gc.set_threshold(*self._chosen)

    def go_on(self) -> None:
        with self._lock:
            self._workers = max(0, self._workers - 1)  # in a child that was forked, it is zero already
            if self._workers == 0:
                self._put_back()

    def note_time(self) -> None:
        """Called often by whoever waits for the worker."""
        if self._before is not None and time.monotonic() - self._looked >= LOOK_S:
            self._look()

    def note_bytes(self, count: int) -> None:
        """So many bytes of payloads have come in."""
        self._fetched += count
        if self._before is not None and self._fetched >= HEAVY:
            self._look()

    def _look(self) -> None:
        self._looked, self._fetched = time.monotonic(), 0
        if gc.isenabled():
            gc.collect(1)

    def _put_back(self) -> None:
        if self._before is not None and gc.get_threshold() == self._chosen:  # nobody else has set it meanwhile
            gc.set_threshold(*self._before)
        self._before = self._chosen = None

    def _in_child(self) -> None:
        """No worker runs in a child that was forked."""
        self._workers = 0
        self._put_back()


collector: Final = _Collector()


@contextmanager
def patient_collector() -> Iterator[None]:
    """Collections are rarer meanwhile. Whoever has switched them off, or made them rarer already, is left alone."""
    collector.slow_down()
    try:
        yield
    finally:
        collector.go_on()
