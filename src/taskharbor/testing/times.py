"""Moments and a clock for tests. A test says `NOON + 2 * MINUTE` and never sleeps."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

NOON: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


class FakeClock:
    """A clock that stands still until the test moves it. Safe to read and move from several threads.

    Pass `clock.now` where code asks for the time, and `clock.monotonic` where it measures how much has passed.
    """

    def __init__(self, start: datetime = NOON) -> None:
        self._start = start
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._now

    __call__ = now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return (self._now - self._start).total_seconds()

    def advance(self, by: timedelta | float) -> datetime:
        """Move on by a timedelta or by seconds, never back; returns the new time."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError(f"a clock does not run backwards, got {step}")
        with self._lock:
            self._now += step
            return self._now
