"""Waiting for work: what the listeners of all stores share."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final

POLL_S: Final = 0.2
"""How often a store that cannot tell of new work is worth a look."""


class BaseListener:
    """Waits, and can be woken. Stores add how they hear of new work.

    The bell is a lock that whoever wakes lets go and the one who waits takes: the cheapest thing that can be waited
    for with a time limit.
    """

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()
        self._closed = False

    def wait(self, timeout_s: float) -> bool:
        return not self._closed and self._wait(min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)) and not self._closed

    def wake(self) -> None:
        with suppress(RuntimeError):  # it rings already
            self._bell.release()

    def close(self) -> None:
        self._closed = True
        self.wake()

    def _wait(self, timeout_s: float) -> bool:
        return self._bell.acquire(timeout=timeout_s)


class SteppingListener(BaseListener):
    """Looks again and again whether anything has changed."""

    step_s: float

    def _wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        left = timeout_s
        while True:
            if self._bell.acquire(timeout=min(self.step_s, left)) or self._has_changed():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False

    def _has_changed(self) -> bool:
        """Whether something was written since this was asked last. Must not raise because the store is away."""
        raise NotImplementedError


class PollingListener(SteppingListener):
    """For stores that cannot tell of new work: says every now and then that it is time to look."""

    step_s = POLL_S

    def __init__(self) -> None:
        super().__init__()
        self._next_look = time.monotonic() + POLL_S

    def _has_changed(self) -> bool:
        moment = time.monotonic()
        if moment < self._next_look:
            return False
        self._next_look = moment + POLL_S
        return True
