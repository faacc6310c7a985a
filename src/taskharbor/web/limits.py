"""Backpressure: how fast a tenant may enqueue, and how many of its jobs may wait.

Each process of a server keeps to its share of the rate, and knows of the others' jobs by what the store counts; so a
tenant may be ahead of its depth by what it enqueues between two counts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

from taskharbor.core.model import Status
from taskharbor.web.problems import Problem
from taskharbor.web.settings import Settings
from taskharbor.web.threads import Threads
from taskharbor.web.watching import Census

MOST_TENANTS: Final = 10_000
LOOK_EVERY_S: Final = 1.0


class Rates:
    """A bucket of tokens for each tenant: one for each job, coming back with time."""

    def __init__(self, rate: float, burst: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._depth = float(max(1, math.ceil(rate)) if burst is None else burst)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, tenant: str, count: int) -> int:
        """As many of `count` as there are tokens for now; a problem if there is none."""
        now = self._clock()
        tokens, since = self._buckets.get(tenant, (self._depth, now))
        tokens = min(self._depth, tokens + (now - since) * self._rate)
        taken = min(count, int(tokens))
        if not taken:
            wait = math.ceil((1 - tokens) / self._rate)
            raise Problem(
                "rate-limited",
                f"{self._rate:g} jobs a second are allowed: wait, or send fewer",
                headers={"Retry-After": str(max(1, wait))},
            )
        if len(self._buckets) >= MOST_TENANTS and tenant not in self._buckets:
            self._forget_rested(now)
        self._buckets[tenant] = (tokens - taken, now)
        return taken

    def _forget_rested(self, now: float) -> None:
        """A bucket that is full again is as good as none."""
        refill_s = self._depth / self._rate
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if now - bucket[1] < refill_s}


class Depths:
    """How many jobs of each tenant wait: what the store counted last, and what came through here since."""

    def __init__(self, depth: int, census: Census, threads: Threads) -> None:
        self._depth = depth
        self._census = census
        self._threads = threads
        self._as_of: datetime | None = None
        self._waiting: Counter[str] = Counter()
        self._look_at = 0.0
        self._lock = asyncio.Lock()

    async def take(self, tenant: str, count: int) -> int:
        if time.monotonic() >= self._look_at:
            async with self._lock:
                if time.monotonic() >= self._look_at:
                    await self._look()
        room = self._depth - self._waiting[tenant]
        if room <= 0:
            waiting = self._waiting[tenant]
            raise Problem("queue-full", f"{waiting:,} jobs of this tenant wait already: let workers catch up")
        taken = min(count, room)
        self._waiting[tenant] += taken
        return taken

    def give_back(self, tenant: str, count: int) -> None:
        """So many of those that were just taken do not come: right after `take`, before anything else happens."""
        self._waiting[tenant] -= count

    async def _look(self) -> None:
        before = Counter(self._waiting)
        standing = await self._threads.run(self._census.read)
        self._look_at = time.monotonic() + LOOK_EVERY_S
        if standing.as_of == self._as_of:
            return  # a large store, which has not been counted again
        self._as_of = standing.as_of
        came = self._waiting - before
        self._waiting = Counter({name: counts[Status.READY] for name, counts in standing.tenants.items()})
        # What was let in while the store counted may or may not be in its count: it is held against the tenant.
        self._waiting += came


class Backpressure:
    def __init__(self, settings: Settings, census: Census, threads: Threads) -> None:
        self._rates = None if settings.share is None else Rates(settings.share, _share_of_burst(settings))
        self._depths = None if settings.depth is None else Depths(settings.depth, census, threads)
        self.is_on = self._rates is not None or self._depths is not None

    async def take(self, tenant: str, count: int = 1) -> int:
        """How many of so many jobs a tenant may enqueue now; a problem if none."""
        room = count if self._depths is None else await self._depths.take(tenant, count)
        if self._rates is None:
            return room
        taken = 0
        try:
            taken = self._rates.take(tenant, room)
        finally:
            if self._depths is not None:
                self._depths.give_back(tenant, room - taken)
        return taken


def _share_of_burst(settings: Settings) -> int | None:
    return None if settings.burst is None else max(1, settings.burst // settings.processes)
