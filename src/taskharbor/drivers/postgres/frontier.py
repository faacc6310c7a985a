"""Keeping claims quick while a long transaction holds back PostgreSQL's cleanup.

Every claimed job leaves a dead entry at the head of the claim index until it can be vacuumed away, and a claim that
starts at the head walks over all of them. When that walk has become slow, most claims start where the last one
stopped, and only now and then one walks the whole way, to find jobs that came in before that point, jobs of another
priority, lapsed leases and late jobs. Healthy tables never get here: there, every claim is a whole one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from taskharbor.core.forking import renew_locks

SLOW_S: Final = 0.01
SLOW_PER_JOB_S: Final = 0.000025
"""What a claim and the settles sent with it take while nothing is wrong, with room to spare."""
SLOW_IN_A_ROW: Final = 3
"""A hiccup is not a backlog of dead entries: only several slow walks in a row are looked into."""
MANY_BLOCKS: Final = 300
"""Blocks that finding the head of the queue reads when it walks over dead entries; otherwise it reads a handful."""
SHARE: Final = 0.05
"""The part of the time that whole walks may take once they are slow."""


class Point(NamedTuple):
    """A place in the order of claims."""

    priority: int
    due_at: datetime
    id: str


class Frontier:
    """Where the claims of one queue have got to."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        renew_locks(self, "_lock")
        self._slow_walks = 0
        self._buried = False
        self._next_walk = 0.0
        self._floor: Point | None = None

    def floor(self) -> Point | None:
        """The last job claimed, to start behind it, or None when this claim should walk the whole way."""
        with self._lock:
            if not self._buried or self._monotonic() >= self._next_walk:
                return None
            return self._floor

    def walked(self, seconds: float, jobs: int, last: Callable[[], Point | None]) -> bool:
        """A whole claim took this long and ended at `last()`. True when somebody should see whether dead entries are
        to blame, or a busy machine, and say so with `judged`."""
        with self._lock:
            if not self._buried and seconds < SLOW_S + SLOW_PER_JOB_S * jobs:
                self._slow_walks = 0
                return False
            self._slow_walks += 1
            self._next_walk = self._monotonic() + seconds / SHARE
            self._floor = last() or self._floor
            return self._buried or self._slow_walks >= SLOW_IN_A_ROW

    def judged(self, blocks: int) -> None:
        """Finding the head of the queue reads this many blocks."""
        with self._lock:
            self._buried = blocks > MANY_BLOCKS
            self._slow_walks = 0

    def continued(self, last: Point | None) -> None:
        """A claim from the floor on ended at `last`."""
        with self._lock:
            if last is not None:
                self._floor = last
