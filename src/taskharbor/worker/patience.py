"""How long a worker that ends waits for threads that may be in a call of the store: not for as long as that likes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from taskharbor.worker.flag import Flag

LOOK_S: Final = 0.05
"""How soon whoever waits notices that the worker is hurried."""


class Patience:
    """So many seconds for all that is waited for together; hardly any more from the moment that the worker is hurried.

    Threads that are not waited for any longer are daemons: they keep nobody from ending.
    """

    def __init__(self, seconds: float, hurry: Flag, hurried_s: float) -> None:
        self._ends = time.monotonic() + seconds
        self._hurry = hurry
        self._hurried_s = hurried_s
        self._is_hurried = False
        self._given_up: list[Callable[[], bool]] = []

    @property
    def is_stuck(self) -> bool:
        """Whether something that was waited for in vain has not ended to this day."""
        return not all(is_over() for is_over in self._given_up)

    def left(self) -> float:
        now = time.monotonic()
        if self._hurry.is_set() and not self._is_hurried:
            self._is_hurried = True
            self._ends = min(self._ends, now + self._hurried_s)
        return max(0.0, self._ends - now)

    def wait(self, wait: Callable[[float], object], is_over: Callable[[], bool]) -> bool:
        """Whether it is over, as soon as it is. `wait` waits for that, or for so many seconds."""
        while not is_over():
            left = self.left()
            if left <= 0.0:
                self._given_up.append(is_over)
                return False
            wait(min(left, LOOK_S))
        return True

    def join(self, thread: threading.Thread) -> bool:
        return self.wait(thread.join, lambda: not thread.is_alive())

    def acquire(self, lock: threading.Lock) -> bool:
        while not lock.acquire(timeout=min(self.left(), LOOK_S)):
            if self.left() <= 0.0:
                return False
        return True

    def call(self, call: Callable[[], object]) -> bool:
        """Whether the call has come back. What it raises is raised here, if it does so in time."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:  # for whoever waits to deal with
                raised.append(error)

        thread = threading.Thread(target=run, name="taskharbor-last-words", daemon=True)
        thread.start()
        if not self.join(thread):
            return False
        if raised:
            raise raised[0]
        return True

    def extend(self, seconds: float) -> None:
        """There are so many seconds left at least, unless the worker is hurried."""
        if not self._hurry.is_set():
            self._ends = max(self._ends, time.monotonic() + seconds)
