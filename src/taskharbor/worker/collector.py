"""Python's collector of cycles, while a worker runs.

By default it looks through all young objects whenever there are 700 more of them than before. A worker that fetches
jobs by the hundred has many thousands at a time, all of which are gone a moment later without its help: looking
through them took a tenth of the time of quick jobs (docs/decisions/0020).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from taskharbor.core.forking import renew_locks

MANY: Final = 50_000
"""More young objects than a worker's own jobs ever are, and few enough that cycles of handlers do not pile up."""


class _Collector:
    """There is one to a process, and there may be several workers in one."""

    def __init__(self) -> None:
        self._workers = 0
        self._before = gc.get_threshold()
        self._lock = threading.Lock()
        renew_locks(self, "_lock")

    def slow_down(self) -> None:
        with self._lock:
            self._workers += 1
            if self._workers == 1:
                self._before = gc.get_threshold()
                if 0 < self._before[0] < MANY:
                    gc.set_threshold(MANY, *self._before[1:])

    def go_on(self) -> None:
        with self._lock:
            self._workers -= 1
            if self._workers == 0 and gc.get_threshold()[0] == MANY:  # nobody else has set it meanwhile
                gc.set_threshold(*self._before)


_collector: Final = _Collector()


@contextmanager
def patient_collector() -> Iterator[None]:
    """Collections are rarer meanwhile. Whoever has switched them off, or made them rarer already, is left alone."""
    _collector.slow_down()
    try:
        yield
    finally:
        _collector.go_on()
