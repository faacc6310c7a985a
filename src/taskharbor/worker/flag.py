"""A word that a signal handler may say: stop."""

from __future__ import annotations

import time
from typing import Final

LOOK_S: Final = 0.05


class Flag:
    """An event without a lock: it may be set where a signal comes in the midst of setting it."""

    def __init__(self) -> None:
        self.since: float | None = None
        """When it was set first, by the monotonic clock."""

    def set(self) -> None:
        if self.since is None:
            self.since = time.monotonic()

    def is_set(self) -> bool:
        return self.since is not None

    def wait(self, timeout: float) -> bool:
        """Whether it is set, as soon as it is, or after that many seconds."""
        ends = time.monotonic() + timeout
        while self.since is None and time.monotonic() < ends:
            time.sleep(min(LOOK_S, timeout))
        return self.since is not None
