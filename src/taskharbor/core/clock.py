"""Time is an argument. This module is where the argument comes from, and where it is checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from taskharbor.core.errors import InvalidTime, TaskHarborError
from taskharbor.core.forking import renew_locks

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Times outside EPOCH..LATEST are refused: some store or some reader could not keep them, and none is real."""

FIRST_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Whatever is to start earlier has been due since then. Before it lie the tags of fair queues, in the same column."""

MICROSECOND: Final = timedelta(microseconds=1)


def checked(moment: datetime, name: str) -> datetime:
    """The same moment in UTC; InvalidTime if it is naive or out of range."""
    if type(moment) is datetime and moment.tzinfo is UTC and EPOCH <= moment <= LATEST:
        return moment  # as nearly all are
    if not isinstance(moment, datetime):
        raise InvalidTime(f"{name} must be a datetime, got {type(moment).__name__}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidTime(
            f"{name} is naive ({moment.isoformat()}): give it a time zone, for example datetime.now(timezone.utc)"
        )
    try:
        inside = EPOCH <= moment <= LATEST
    except OverflowError:
        inside = False
    if not inside:
        raise InvalidTime(f"{name} is out of range ({moment.isoformat()}): use a time from 1970 to 8999")
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    if type(moment) is datetime:
        return moment
    # One of pandas, for example, which is finer than any store keeps it.
    return datetime(
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond, UTC
    )


def checked_start(moment: datetime, name: str) -> datetime:
    """`checked` for the time at which a job is to start."""
    return max(checked(moment, name), FIRST_START)


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970, exact (`timestamp()` is a float and is not)."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def utc_now() -> datetime:
    return datetime.now(UTC)


READINGS: Final = 3
GOOD_READING_S: Final = 0.001


class StoreClock:
    """The store's clock, read rarely and carried forward by the local monotonic clock.

    A worker whose wall clock is wrong, or jumps, still agrees with every other worker of the store.
    """

    def __init__(
        self,
        measure: Callable[[], datetime],
        *,
        refresh_s: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure = measure
        self._refresh_s = refresh_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        renew_locks(self, "_lock")
        self._anchor: tuple[datetime, float] | None = None
        self._refresh_at = 0.0

    def now(self) -> datetime:
        anchor, moment = self._anchor, self._monotonic()
        if anchor is None or moment >= self._refresh_at:
            anchor = self._refreshed(anchor)
            moment = self._monotonic()
        store_time, taken = anchor
        return store_time + timedelta(0, moment - taken)  # days and seconds; by name they take twice as long

    def _best_reading(self) -> tuple[datetime, float]:
        """The store read its clock somewhere between the question and the answer; the middle halves the error. The
        first answer may have had to wait for a connection, so a slow one is asked for again."""
        best: tuple[float, datetime, float] | None = None
        for _ in range(READINGS):
            before = self._monotonic()
            store_time = self._measure()
            after = self._monotonic()
            if best is None or after - before < best[0]:
                best = after - before, store_time, (before + after) / 2
            if best[0] <= GOOD_READING_S:
                break
        assert best is not None
        return best[1], best[2]

    def _refreshed(self, known: tuple[datetime, float] | None) -> tuple[datetime, float]:
        # One thread asks; whoever has an older reading goes on with that instead of waiting.
        if not self._lock.acquire(blocking=known is None):
            assert known is not None
            return known
        try:
            if self._anchor is not None and self._monotonic() < self._refresh_at:
                return self._anchor
            self._refresh_at = self._monotonic() + self._refresh_s
            try:
                self._anchor = self._best_reading()
            except TaskHarborError:
                if known is None:
                    self._refresh_at = 0.0
                    raise
                # An old reading is good for a while. If the store is away, the call it is for will say so.
                return known
            return self._anchor
        finally:
            self._lock.release()
