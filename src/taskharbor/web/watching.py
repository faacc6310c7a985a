"""How many jobs stand where, told without making a large store count at every question."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fastapi import FastAPI

from taskharbor.core.answers import CensusRow
from taskharbor.core.contract import Driver
from taskharbor.core.model import Status
from taskharbor.web.looping import Loop

QUICK_S: Final = 0.010
"""A store that counts within this time is asked anew for every question,"""
SMALL: Final = 10_000
"""and so is one with no more jobs than this, however long the machine makes it wait."""
SHARE: Final = 0.05
"""The part of the time that a slower store may spend on counting."""
IDLE_SHARE: Final = 0.005
"""The same, when nobody has asked for IDLE_S."""
IDLE_S: Final = 60.0
SHORTEST_S: Final = 1.0
LONGEST_S: Final = 300.0
FIRST_WAIT_S: Final = 30.0
"""How long a question waits for the very first count of a large store."""


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """One queue of one tenant, or of all."""

    name: str
    counts: Mapping[str, int]
    """By status; every status is there."""
    scheduled: int
    """The part of ready that is not due yet."""
    oldest_due: datetime | None
    """Since when the first of the due jobs has been waiting."""

    def oldest_s(self, now: datetime) -> float | None:
        return None if self.oldest_due is None else max(0.0, round((now - self.oldest_due).total_seconds(), 3))


@dataclass(frozen=True, slots=True)
class Standing:
    """A count of one tenant's jobs, or of all, as it was at `as_of` (the store's clock)."""

    as_of: datetime
    counts: Mapping[str, int]
    scheduled: int
    queues: Mapping[str, QueueStanding]
    """By name, in order. Queues without jobs are not there."""
    tenants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts by status of each tenant that has jobs, in order of their names."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Census:
    """`read` answers from a fresh count where counting is quick, and from the last one where it is not: then a thread
    counts again and again, and spends a twentieth of its time on it."""

    def __init__(
        self, driver: Driver, *, quick_s: float = QUICK_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._driver = driver
        self._quick_s = quick_s
        self._monotonic = monotonic
        self._loop = Loop("census", self._turn)
        self._counting = threading.Lock()
        self._lock = threading.Lock()
        self._rows: Sequence[CensusRow] = ()
        self._as_of: datetime | None = None
        self._began = float("-inf")
        self._took = float("inf")
        self._is_quick = False
        self._asked = float("-inf")
        self._views: dict[str | None, Standing] = {}

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def read(self, tenant: str | None = None) -> Standing:
        """How the jobs of this tenant, or of all (None), stand; `as_of` says when that was true. It may ask the store,
        so it is no call for an event loop; errors of the store come through."""
        asked = self._asked = self._monotonic()
        if self._is_quick:
            self._count_since(asked)
            if not self._is_quick:  # it has grown: from now on the thread counts
                self._loop.wake()
        elif self._as_of is None:
            # The first count of a store whose size nobody knows: whoever comes meanwhile waits for the same one.
            if self._counting.acquire(timeout=FIRST_WAIT_S):
                self._counting.release()
            if self._as_of is None:
                self._count_since(asked)
        elif asked - self._began > LONGEST_S + 2 * self._took:
            self._count_since(asked)  # no thread does it
        elif asked - self._began > self._pause_s() and not self._counting.locked():
            self._loop.wake()
        return self._view(tenant)

    def refresh(self) -> float:
        """Count now; returns the seconds it took."""
        self._count_since(self._monotonic())
        return self._took

    def _count_since(self, asked: float) -> None:
        """A count that began after `asked`, our own or another caller's."""
        with self._counting:
            if self._began >= asked:
                return
            began = self._monotonic()
            now = self._driver.now()
            rows = self._driver.census(now)
            took = self._monotonic() - began
            with self._lock:
                self._rows, self._as_of, self._began, self._took = rows, now, began, took
                self._is_quick = took <= self._quick_s or sum(row.count for row in rows) <= SMALL
                self._views = {}

    def _turn(self) -> float:
        if not self._is_quick:
            self.refresh()
        return self._pause_s()

    def _pause_s(self) -> float:
        if self._is_quick:
            return LONGEST_S / 10
        share = SHARE if self._monotonic() - self._asked < IDLE_S else IDLE_SHARE
        return min(LONGEST_S, max(SHORTEST_S, self._took * (1 / share - 1)))

    def _view(self, tenant: str | None) -> Standing:
        with self._lock:
            rows, as_of = self._rows, self._as_of
            known = self._views.get(tenant)
        assert as_of is not None
        if known is None:
            known = standing(rows, as_of, tenant)
            with self._lock:
                if self._as_of is as_of and len(self._views) < 1_000:
                    self._views[tenant] = known
        return known


def standing(rows: Sequence[CensusRow], as_of: datetime, tenant: str | None = None) -> Standing:
    """The rows of a census added up, of one tenant or of all."""
    counts = _zeros()
    queues: dict[str, dict[str, int]] = {}
    scheduled: dict[str, int] = {}
    oldest: dict[str, datetime] = {}
    tenants: dict[str, dict[str, int]] = {}
    for row in rows:
        if tenant is not None and row.tenant_id != tenant:
            continue
        status = row.status.value
        counts[status] += row.count
        queues.setdefault(row.queue, _zeros())[status] += row.count
        tenants.setdefault(row.tenant_id, _zeros())[status] += row.count
        scheduled[row.queue] = scheduled.get(row.queue, 0) + row.scheduled
        if row.oldest_due is not None:
            oldest[row.queue] = min(row.oldest_due, oldest.get(row.queue, row.oldest_due))
    return Standing(
        as_of,
        counts,
        sum(scheduled.values()),
        {
            name: QueueStanding(name, by_status, scheduled[name], oldest.get(name))
            for name, by_status in sorted(queues.items())
        },
        dict(sorted(tenants.items())),
    )


def _zeros() -> dict[str, int]:
    return {status.value: 0 for status in Status}


def install(app: FastAPI) -> None:
    app.state.census = Census(app.state.driver)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    census: Census = app.state.census
    census.start()
    try:
        yield
    finally:
        await app.state.threads.run(census.stop)
