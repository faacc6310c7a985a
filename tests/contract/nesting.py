"""What drivers with planted bugs stand on: an operation in the midst of another one of the same thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.state import State


class NestingDriver(MemoryDriver):
    """The inner operation is part of the outer one, where the store itself would take that for abandoned."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outer = threading.local()

    @contextmanager
    def _reading(self) -> Iterator[State]:
        state = getattr(self._outer, "state", None)
        if state is not None:
            yield state
            return
        with super()._reading() as state:
            yield state

    @contextmanager
    def _writing(self) -> Iterator[State]:
        state = getattr(self._outer, "state", None)
        if state is not None:
            yield state
            return
        with super()._writing() as state:
            self._outer.state = state
            try:
                yield state
            finally:
                self._outer.state = None
