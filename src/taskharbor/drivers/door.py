"""A lock that is not lost with a thread that was taken out of what it guards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Door:
    """One thread at a time is behind it. If an interrupt took a thread away in between, and a traceback keeps open
    what it was in, the same thread comes in again by a new lock. The others come in by that one too, or when the
    traceback goes, in whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: int | None = None
        """The thread that is, or was left, behind the door."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        self._pass_by_what_was_left()
        while True:
            lock = self._lock
            with lock:
                if lock is not self._lock:  # exchanged while we waited
                    continue
                self._inside = threading.get_ident()
                try:
                    yield
                finally:
                    if lock is self._lock:
                        self._inside = None
                return

    def acquire(self, *, timeout: float) -> bool:
        """The same, for who cannot use a `with` statement: who calls `release` behind it."""
        self._pass_by_what_was_left()
        deadline = time.monotonic() + timeout
        while True:
            lock = self._lock
            if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return False
            if lock is self._lock:
                self._inside = threading.get_ident()
                return True
            lock.release()

    def release(self) -> None:
        self._inside = None
        self._lock.release()

    def _pass_by_what_was_left(self) -> None:
        if self._inside == threading.get_ident():
            self._lock, self._inside = threading.Lock(), None
