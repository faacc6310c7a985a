"""`memory://`: the queue in this process. The reference that every other driver is compared to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from taskharbor.core.limits import Limits
from taskharbor.drivers.engine import EngineDriver
from taskharbor.drivers.state import State

_shared: dict[str, tuple[State, threading.RLock]] = {}
_shared_lock = threading.Lock()


class MemoryDriver(EngineDriver):
    """Jobs live as long as the process. With a name, every driver of that name shares them."""

    def __init__(self, name: str = "", *, limits: Limits | None = None) -> None:
        super().__init__(limits=limits)
        if name:
            with _shared_lock:
                self._state, self._lock = _shared.setdefault(name, (State(), threading.RLock()))
        else:
            self._state, self._lock = State(), threading.RLock()

    def migrate(self) -> None:
        self._check_open()

    def _reading(self) -> AbstractContextManager[State]:
        return self._held()

    def _writing(self) -> AbstractContextManager[State]:
        return self._held()

    @contextmanager
    def _held(self) -> Iterator[State]:
        with self._lock:
            self._check_open()
            yield self._state

    def _close(self) -> None:
        # The shared state stays: closing a handle does not empty the queue for the others.
        pass
