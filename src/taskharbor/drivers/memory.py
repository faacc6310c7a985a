"""`memory://`: the queue in this process. The reference that every other driver is compared to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taskharbor.core.contract import Listener
from taskharbor.core.errors import StoreUnavailable, TaskHarborError
from taskharbor.core.limits import Limits
from taskharbor.core.model import Status
from taskharbor.drivers.door import Door
from taskharbor.drivers.engine import EngineDriver
from taskharbor.drivers.listening import BaseListener
from taskharbor.drivers.state import State, Undo


class Bells:
    """Wakes whoever listens to a queue whenever one of its jobs becomes ready, however that came about.

    Used under the lock of the state only.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._by_queue: dict[str, set[MemoryListener]] = {}

    def add(self, listener: MemoryListener) -> None:
        for queue in listener.queues:
            self._by_queue.setdefault(queue, set()).add(listener)

    def remove(self, listener: MemoryListener) -> None:
        for queue in listener.queues:
            listeners = self._by_queue.get(queue, set())
            listeners.discard(listener)
            if not listeners:
                self._by_queue.pop(queue, None)

    def on_change(self, table: str, key: Any, value: Any) -> None:
        if not self._by_queue or self.state.restoring:
            return
        if table == "bench" and value is None:  # a limit has room for it again
            value = self.state.jobs.get(key)
        elif table != "jobs":
            return
        if value is not None and value.status is Status.READY:
            for listener in self._by_queue.get(value.queue, ()):
                listener.wake()


class Shared:
    """What all drivers of one name have in common."""

    def __init__(self) -> None:
        self.state = State()
        self.door = Door()
        self.bells = Bells(self.state)
        self.state.on_change = self.bells.on_change

    def whole(self) -> State:
        """The state behind the last change that came to its end. Used behind the door only.

        What an interrupt tore is left as it is, to whom it may still be in the hands of, and put aside.
        """
        if self.state.undo is not None:
            before = self.state.before()
            before.on_change = self.bells.on_change
            self.bells.state = before
            self.state = before
        return self.state


_shared: dict[str, Shared] = {}
_shared_lock = threading.Lock()


class MemoryDriver(EngineDriver):
    """Jobs live as long as the process. With a name, every driver of that name shares them."""

    def __init__(self, name: str = "", *, limits: Limits | None = None) -> None:
        super().__init__(limits=limits)
        with _shared_lock:
            self._shared = _shared.setdefault(name, Shared()) if name else Shared()

    def migrate(self) -> None:
        self._check_open()

    @contextmanager
    def _reading(self) -> Iterator[State]:
        with self._shared.door.entered():
            self._check_open()
            yield self._shared.whole()

    @contextmanager
    def _writing(self) -> Iterator[State]:
        with self._shared.door.entered():
            self._check_open()
            state = self._shared.whole()
            undo: Undo = []
            state.undo = undo
            try:
                yield state
            except TaskHarborError:
                if not undo:  # a refusal, and as such no reason to go over the whole state
                    state.undo = None
                raise
            if state is not self._shared.state:
                raise StoreUnavailable(
                    "another call came in between in the same thread, as from a signal handler, "
                    "and nothing of this one was kept: try again"
                )
            state.undo = None

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        return MemoryListener(queues, self._shared)

    def _close(self) -> None:
        # The shared state stays: closing a handle does not empty the queue for the others.
        pass


class MemoryListener(BaseListener):
    """Hears of every job that becomes ready in its queues."""

    def __init__(self, queues: tuple[str, ...], shared: Shared) -> None:
        super().__init__()
        self.queues = queues
        self._shared = shared
        with shared.door.entered():
            shared.bells.add(self)

    def close(self) -> None:
        super().close()
        with self._shared.door.entered():
            self._shared.bells.remove(self)
