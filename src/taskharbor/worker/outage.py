"""What a worker does while its store is away: waits, a little longer each time, and says so once."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Final, Protocol

from taskharbor.core.errors import StoreError, StoreMoved

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0

log = logging.getLogger("taskharbor.worker")


class Stop(Protocol):
    """Told to stop, or not: an event, or what looks like one."""

    def wait(self, timeout: float) -> bool: ...


class Outage:
    """Shared by the loops of one worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._wait_s = FIRST_WAIT_S
        self.moved: StoreMoved | None = None
        """What the store said last, if it is that everything was moved to another one."""

    def wait(self, error: StoreError, stop: Stop) -> None:
        self.began(error)
        with self._lock:
            wait_s = self._wait_s
            self._wait_s = min(LONGEST_WAIT_S, wait_s * 2)
        stop.wait(random.uniform(wait_s / 2, wait_s))

    def began(self, error: StoreError) -> None:
        with self._lock:
            self.moved = error if isinstance(error, StoreMoved) else None
            if self._since is not None:
                return
            self._since = time.monotonic()
        log.warning("the store cannot be used; trying again until it can: %s", error)

    def over(self) -> None:
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
            self.moved = None
            self._wait_s = FIRST_WAIT_S
        if since is not None:
            log.warning("the store is back after %.1f s", time.monotonic() - since)
