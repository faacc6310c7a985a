"""Two threads that take turns: one serves, that is, claims and settles; the other one runs a job that came alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from taskharbor.worker.patience import Patience

log = logging.getLogger("taskharbor.worker")


class Turns:
    """A job that comes to an idle queue is run by the thread that claimed it, which saves the time in which another
    one wakes up; and whoever waits for its turn serves from then on."""

    def __init__(self, name: str, serve: Callable[[], bool], work: Callable[[], None]) -> None:
        self._name = name
        self._serve = serve
        """Returns True when the thread that called it is to `work`, and False when all is over."""
        self._work = work
        self._threads: list[threading.Thread] = []
        self._baton = threading.Lock()
        """Whoever has it serves."""
        self.at_work = False
        """One of the two runs a job."""
        self.over = threading.Event()

    def start(self) -> None:
        """One thread, which is all there is until a job comes alone."""
        thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
        thread.start()
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]

    def end(self, patience: Patience) -> None:
        """Wait until nobody serves any more; not for the threads, for one may run a handler that was left behind."""
        if self._threads:
            patience.wait(self.over.wait, self.over.is_set)

    def may_leave(self) -> bool:
        """Whether the thread that serves may go and run a job, because the other one is there to serve meanwhile. Where
        it is not, it will be the next time."""
        if self.at_work:
            return False
        if len(self._threads) > 1 and all(thread.is_alive() for thread in self._threads):
            return True
        with suppress(RuntimeError):  # of the system's bounds: then there is one thread
            self.start()
        return False

    def _loop(self) -> None:
        while not self.over.is_set():
            try:
                self._turn()
            except BaseException as error:  # thrown in from outside, and late: its handler has ended
                log.warning("%s was interrupted and goes on (%s)", self._name, type(error).__name__)

    def _turn(self) -> None:
        with self._baton:
            self.at_work = leaves = self._serve()
        if not leaves:
            self.over.set()
            return
        try:
            self._work()
        finally:
            self.at_work = False
