"""What a clock on the wall shows in a time zone, and where it jumps. A wall time is naive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

SECOND: Final = timedelta(seconds=1)


def offsets(zone: tzinfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """The offset from UTC by the clock before and after a change. They differ only where the wall time is skipped
    (the first is smaller) or comes twice (the first is larger)."""
    before, after = zone.utcoffset(wall), zone.utcoffset(wall.replace(fold=1))
    assert before is not None
    assert after is not None
    return before, after


def changeover(zone: tzinfo, wall: datetime, before: timedelta, after: timedelta) -> datetime:
    """The moment, to the second, at which the clock changes around a wall time that is skipped or comes twice."""
    low, high = aware(wall - max(before, after)), aware(wall - min(before, after))
    while high - low > SECOND:
        middle = low + (high - low) // SECOND // 2 * SECOND
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)
