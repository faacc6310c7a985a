"""Follows the history feed, so that what happened lately is known without asking the store.

Every process of a server follows the same feed from the same place, so that each comes to the same counters, and a
scrape that another process answers never sees them go back. All of the public methods may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from fastapi import FastAPI

from taskharbor.core.answers import Glance, Glances
from taskharbor.core.clock import EPOCH, MICROSECOND
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidCursor
from taskharbor.core.model import Outcome
from taskharbor.web.looping import Loop
from taskharbor.web.subscribing import Subscribers, Subscription
from taskharbor.web.tallies import RUN, WAIT, Percentiles, Tally
from taskharbor.web.totals import Totals
from taskharbor.web.windows import HOUR_S, Windows

log = logging.getLogger("taskharbor.web")

LOOK_S: Final = 1.0
PAGE: Final = 2_000
SEED: Final = 10_000
"""Rows from before the start that are read for the windows, so that a server that was just started has something to
show."""
BITE_S: Final = 0.5
"""How long one step reads on before others may have a turn."""
KEPT_ROWS: Final = 20_000
"""Rows of the last pages, kept for streams."""

SECOND: Final = timedelta(seconds=1)

Fact = tuple[str, datetime, Outcome, int | None]
"""What tells one row of the feed from all others."""


class Recent(NamedTuple):
    """What happened in a window that ends now. `window_s` is shorter than asked for when less is known."""

    window_s: float
    attempts: int
    failed: int
    per_second: float
    failure_rate: float
    wait: Percentiles
    run: Percentiles


class Series(NamedTuple):
    """Columns for charts, all of one length: complete slots of `step_s` seconds, the oldest first. `at` is when a slot
    begins, in seconds since 1970; counts are of the slot, percentiles in seconds and None where nothing ran."""

    step_s: int
    at: list[int]
    succeeded: list[int]
    retried: list[int]
    dead: list[int]
    lapsed: list[int]
    wait_p50: list[float | None]
    wait_p95: list[float | None]
    run_p50: list[float | None]
    run_p95: list[float | None]


class Feed:
    """`start` is a cursor of `driver.latest`; without one, counters begin at the end of the feed as it is at the first
    step. `step` reads what is new; `start()` does so in a thread once a second until `stop()`."""

    def __init__(
        self, driver: Driver, start: str | None = None, *, look_s: float | None = None, page: int = PAGE
    ) -> None:
        self._driver = driver
        self._origin = start
        self._page = page
        self._look_s = LOOK_S if look_s is None else look_s
        self._loop = Loop("feed", self._turn)
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._cursor: str | None = None
        self._windows = Windows()
        self._totals = Totals()
        self._seeded: set[Fact] = set()
        self._known_since = 0.0
        self._seen_to = 0.0
        self._pages: OrderedDict[str, Glances] = OrderedDict()
        self._kept = 0
        self._ends: dict[Fact, str] = {}
        self._subscribers = Subscribers()

    # --- Life cycle --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Nothing is read any more, and every subscription ends."""
        self._loop.stop()
        self._subscribers.close()

    def _turn(self) -> float:
        return self._look_s if self.step() else 0.0

    def step(self, bite_s: float = BITE_S) -> bool:
        """Read what is new, for so long at most. Whether the end was reached."""
        deadline = time.monotonic() + bite_s
        with self._reading:
            if self._cursor is None:
                self._begin()
            while True:
                if self._read_page():
                    return True
                if time.monotonic() >= deadline:
                    return False

    def catch_up(self, within_s: float = 2.0) -> bool:
        """Read to the end of the feed as it is now, unless that takes too long. Whether it was reached."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if self.step(max(0.0, deadline - time.monotonic())):
                return True
        return False

    def glance(self, within_s: float) -> None:
        """Read what is new, unless somebody does already."""
        if self._reading.acquire(blocking=False):
            self._reading.release()
            self.step(within_s)

    # --- What happened -----------------------------------------------------------------------------------

    def recent(self, tenant: str | None = None, queue: str | None = None, window_s: float = 300.0) -> Recent:
        """Throughput, failures and percentiles of the last `window_s` seconds (an hour at most)."""
        now = self._now()
        with self._lock:
            window_s = max(1.0, min(window_s, HOUR_S, now - self._known_since))
            tally = self._windows.total(tenant, queue, now, window_s)
        attempts, failed = tally.attempts, tally.failed
        return Recent(
            round(window_s, 3),
            attempts,
            failed,
            round(attempts / window_s, 3),
            round(failed / attempts, 4) if attempts else 0.0,
            tally.percentiles(WAIT),
            tally.percentiles(RUN),
        )

    def percentiles(
        self, tenant: str | None = None, queue: str | None = None, window_s: float = 300.0
    ) -> tuple[Percentiles, Percentiles]:
        """Of the time that jobs waited, and of the time that they ran."""
        found = self.recent(tenant, queue, window_s)
        return found.wait, found.run

    def series(
        self, tenant: str | None = None, seconds: float = 300.0, step: int = 5, queue: str | None = None
    ) -> Series:
        """The last `seconds` in slots of `step` seconds, for charts. Up to 300 seconds come in steps of 5 or more (of
        1 or more for everything together: no tenant, no queue), up to an hour in steps of 60 or more."""
        with self._lock:
            column = self._windows.column(tenant, queue, self._seen_to or self._now(), seconds, step)
        waits = [tally.percentiles(WAIT) for tally in column.tallies]
        runs = [tally.percentiles(RUN) for tally in column.tallies]

        def counts(outcome: Outcome) -> list[int]:
            return [tally.get(outcome, 0) for tally in column.tallies]

        return Series(
            column.step_s,
            [column.start + number * column.step_s for number in range(len(column.tallies))],
            counts(Outcome.SUCCEEDED),
            counts(Outcome.RETRIED),
            counts(Outcome.DEAD),
            counts(Outcome.LAPSED),
            [each.p50 for each in waits],
            [each.p95 for each in waits],
            [each.p50 for each in runs],
            [each.p95 for each in runs],
        )

    def totals(self, tenant: str | None = None) -> dict[str, Tally]:
        """Tallies by queue since the start of the feed: they only rise."""
        with self._lock:
            return self._totals.by_queue(tenant)

    def active_queues(self, tenant: str | None = None) -> list[str]:
        """The queues in which something happened within the hour."""
        with self._lock:
            return self._windows.queues(tenant)

    # --- Live --------------------------------------------------------------------------------------------

    def subscribe(self) -> Subscription:
        """Tells its holder, inside an event loop, that there is something new: `async with feed.subscribe() as news:
        await news.wait(15)`."""
        return self._subscribers.subscribe()

    def cursor(self) -> str:
        """How far the feed was read."""
        if self._cursor is None:
            self.step(0.0)
        assert self._cursor is not None
        return self._cursor

    def at_hand(self, cursor: str) -> Glances | None:
        """The rows behind this cursor, if they are in memory; None if they are not."""
        with self._lock:
            return Glances((), cursor) if cursor == self._cursor else self._pages.get(cursor)

    def after(self, cursor: str) -> Glances:
        """The rows behind this cursor; none if there are none yet. It may ask the store."""
        known = self.at_hand(cursor)
        if known is not None:
            return known
        page = self._driver.latest(cursor, self._page)
        with self._lock:
            # Where it meets the pages in memory it ends, so that its reader goes on with those.
            for number, row in enumerate(page.rows):
                end = self._ends.get(_fact(row))
                if end is not None:
                    return Glances(page.rows[: number + 1], end)
        return page

    # --- Reading -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The windows begin with what is there already; the counters where the server began."""
        newest = self._driver.latest(None, SEED)
        now = self._now()
        rows = [row for row in newest.rows if _seconds(row.at) > now - HOUR_S]
        with self._lock:
            if len(newest.rows) >= SEED and len(rows) == len(newest.rows):
                self._known_since = min(_seconds(row.at) for row in rows)
            for (tenant, queue, second), tally in _grouped(rows).items():
                self._windows.add(tenant, queue, second, tally)
            if self._origin is not None:
                self._seeded = {_fact(row) for row in rows}
            self._cursor = newest.cursor if self._origin is None else self._origin

    def _read_page(self) -> bool:
        """Whether this was the last page for now."""
        assert self._cursor is not None
        now = self._now()
        try:
            page = self._driver.latest(self._cursor, self._page)
        except InvalidCursor as error:
            log.warning("the feed is another one now; going on from its end: %s", error)
            page = self._driver.latest(None, 1)
            with self._lock:
                self._forget_pages()
                self._cursor = page.cursor
            return True
        is_last = len(page.rows) < self._page
        if page.rows:
            self._take(page)
            self._subscribers.tell()
        with self._lock:
            self._cursor = page.cursor
            if is_last:
                self._seeded.clear()
                self._seen_to = now
        return is_last

    def _take(self, page: Glances) -> None:
        counted = _grouped(page.rows, self._totals.code)
        fresh = counted
        if self._seeded:
            fresh = _grouped([row for row in page.rows if _fact(row) not in self._seeded])
        with self._lock:
            for (tenant, queue, _), tally in counted.items():
                self._totals.add(tenant, queue, tally)
            for (tenant, queue, second), tally in fresh.items():
                self._windows.add(tenant, queue, second, tally)
            assert self._cursor is not None
            self._pages[self._cursor] = page
            self._ends[_fact(page.rows[-1])] = page.cursor
            self._kept += len(page.rows)
            while self._kept > KEPT_ROWS and len(self._pages) > 1:
                _, oldest = self._pages.popitem(last=False)
                self._kept -= len(oldest.rows)
                self._ends.pop(_fact(oldest.rows[-1]), None)
            self._cursor = page.cursor

    def _forget_pages(self) -> None:
        self._pages.clear()
        self._ends.clear()
        self._kept = 0

    def _now(self) -> float:
        return _seconds(self._driver.now())


def _grouped(rows: Sequence[Glance], code_of: Callable[[str], str] | None = None) -> dict[tuple[str, str, int], Tally]:
    """One tally for each tenant, queue and second, in the order in which they come up."""
    found: dict[tuple[str, str, int], Tally] = {}
    for row in rows:
        key = (row.tenant_id, row.queue, (row.at - EPOCH) // SECOND)
        tally = found.get(key)
        if tally is None:
            tally = found[key] = Tally()
        tally.count(row, code_of(row.code) if code_of is not None and row.code else None)
    return found


def _fact(row: Glance) -> Fact:
    return row.job_id, row.at, row.outcome, row.attempt_no


def _seconds(moment: datetime) -> float:
    return ((moment - EPOCH) // MICROSECOND) / 1e6


def install(app: FastAPI) -> None:
    app.state.feed = Feed(app.state.driver, app.state.settings.feed_start)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    feed: Feed = app.state.feed
    feed.start()
    try:
        yield
    finally:
        await app.state.threads.run(feed.stop)
