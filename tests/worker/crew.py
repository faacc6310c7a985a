"""Short words for the tests of the worker: handlers wait on events, and tests on conditions, never on the clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.waiting import until

from taskharbor import Harbor
from taskharbor.app.lookup import JobView
from taskharbor.core.contract import Driver
from taskharbor.core.model import Enqueued, HistoryRow
from taskharbor.drivers import open_driver

PATIENCE_S = 20.0


def pause(event: threading.Event) -> None:
    """A handler waits for the test; it does not outlive a test that failed."""
    assert event.wait(PATIENCE_S), "nobody let the handler go on"


async def apause(event: threading.Event) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not event.is_set():
        assert time.monotonic() < ends, "nobody let the handler go on"
        await asyncio.sleep(0.002)


def finished(harbor: Harbor, *jobs: Enqueued) -> list[JobView]:
    """The jobs when all of them have ended."""
    until(lambda: all(harbor.job(job).finished for job in jobs), "the jobs end")
    return [harbor.job(job) for job in jobs]


def outcomes(view: JobView) -> list[str]:
    return [str(attempt.outcome) for attempt in view.attempts]


def final_rows(driver: Driver) -> dict[str, int]:
    """How often history says of each job that it has ended. The feed may hold rows back, but not for long."""
    rows: list[HistoryRow] = []
    cursor = None
    while True:
        page = driver.history(cursor, 10_000)
        rows.extend(page.rows)
        cursor = page.cursor
        if not page.rows:
            break
    ends: dict[str, int] = {}
    for row in rows:
        if row.job is not None:
            ends[row.job_id] = ends.get(row.job_id, 0) + 1
    return ends


class Wrapped:
    """A driver on which some operations do something else, for as long as a test wants that."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.instead: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        instead = self.__dict__["instead"].get(name)
        return instead or getattr(self.__dict__["driver"], name)


def wrapped_harbor(url: str, **options: Any) -> tuple[Harbor, Wrapped]:
    driver = open_driver(url)
    driver.migrate()
    wrapped = Wrapped(driver)
    return Harbor(url, driver=wrapped, **options), wrapped  # type: ignore[arg-type]
