"""What can be done to jobs from a page. Plain calls of the store, in bounded steps; pages say what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, JobNotFound
from taskharbor.core.limiting import rate_a_second
from taskharbor.core.model import JobFilter, Status

_CHUNK: Final = 500
MOST_CANCELLED: Final = 2_000
"""At once: jobs are cancelled one by one."""


def rate_of(text: str) -> float | None:
    """Jobs a second, as people write it (10, 60/m); None for nothing."""
    if not text:
        return None
    rate = rate_a_second(text)
    if not 0.001 <= rate <= 1_000_000:
        raise InvalidInput("a rate is a number of jobs a second above zero, such as 10 or 60/m")
    return rate


def redrive(
    driver: Driver, ids: Sequence[str], tenant: str | None, rate: float | None = None, *, reset_attempts: bool = False
) -> int:
    """Send these jobs back from the DLQ, in this order; how many were there."""
    now = driver.now()
    moved = 0
    for at in range(0, len(ids), _CHUNK):
        start = None if rate is None else now + timedelta(seconds=at / rate)
        chosen = JobFilter(ids=ids[at : at + _CHUNK], tenant_id=tenant)
        moved += len(driver.redrive(chosen, run_at=start, rate=rate, reset_attempts=reset_attempts))
    return moved


class Cancelled:
    """What a cancel of several jobs came to."""

    def __init__(self) -> None:
        self.at_once = 0
        self.asked = 0
        """Running ones, which were asked to stop."""
        self.left = 0
        """That had ended meanwhile."""


def cancel(driver: Driver, ids: Sequence[str]) -> Cancelled:
    """`ids` are known to be the visitor's own."""
    found = Cancelled()
    for id in ids:
        try:
            status = driver.cancel(id)
        except JobNotFound:
            found.left += 1
            continue
        if status is Status.CANCELLED:
            found.at_once += 1
        elif status is Status.INFLIGHT:
            found.asked += 1
        else:
            found.left += 1
    return found
