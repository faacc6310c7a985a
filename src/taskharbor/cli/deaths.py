"""Pages of the DLQ in the order of death. A store lists jobs by their ids, and one that is old may have died last."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.errors import InvalidCursor

if TYPE_CHECKING:
    from taskharbor.core.answers import Page
    from taskharbor.core.contract import Driver
    from taskharbor.core.model import Job, JobFilter

MOST: Final = 5_000
"""So many jobs are read to sort them. Of more, a page is as the store lists it."""
_PAGE: Final = 500
_CURSOR: Final = "died:"

Place = tuple[datetime, str]


def page_of_dead(driver: Driver, filter: JobFilter, cursor: str | None, limit: int) -> tuple[Page, bool]:
    """A page of the DLQ, and whether it is in the order of death, the last first. Each cursor goes on in the order of
    the page that ended with it, however many have come in since."""
    by_death = driver.count(filter, MOST + 1) <= MOST if cursor is None else cursor.startswith(_CURSOR)
    if not by_death:
        return driver.list(filter, cursor, limit), False
    from taskharbor.core.answers import Page

    behind = None if cursor is None else _place_in(cursor)
    later = (job for job in _all(driver, filter) if behind is None or _place(job) < behind)
    found = heapq.nlargest(limit + 1, later, key=_place)
    if len(found) <= limit:
        return Page(found, None), True
    died_at, id = _place(found[limit - 1])
    return Page(found[:limit], f"{_CURSOR}{to_micros(died_at)}:{id}"), True


def _all(driver: Driver, filter: JobFilter) -> Iterator[Job]:
    cursor: str | None = None
    while True:
        page = driver.list(filter, cursor, _PAGE)
        yield from page.jobs
        cursor = page.cursor
        if cursor is None:
            return


def _place(job: Job) -> Place:
    return job.dlq_failed_at or job.updated_at, job.id


def _place_in(cursor: str) -> Place:
    from taskharbor.drivers.checks import check_cursor

    check_cursor(cursor)
    micros, colon, id = cursor.removeprefix(_CURSOR).partition(":")
    try:
        if not (colon and id):
            raise ValueError(cursor)
        return from_micros(int(micros)), id
    except (ValueError, OverflowError):
        raise InvalidCursor(f"cursor {cursor!r} is not one that dlq list gave out: start without one") from None
