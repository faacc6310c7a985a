"""Where the ticks of an axis are, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10
from typing import Final

from taskharbor.pipeline.report_words import compact

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_STEPS: Final = (
    *(number * _MINUTE for number in (1, 2, 5, 10, 15, 30)),
    *(number * _HOUR for number in (1, 2, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 7, 14, 28, 91, 182, 364, 3640)),
)
_MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)
_LOG_TICKS: Final = {
    0.001: "1 ms",
    0.01: "10 ms",
    0.1: "0.1 s",
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    36_000: "10 h",
    86_400 * 4: "4 d",
    86_400 * 40: "40 d",
    86_400 * 400: "400 d",
}


@dataclass(frozen=True, slots=True)
class Tick:
    place: float
    """From 0 to 1, along the axis."""
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    ticks: tuple[Tick, ...]
    place: Callable[[float], float]
    """Where a value is, from 0 to 1."""


def linear(most: float, label: Callable[[float], str] = compact) -> Axis:
    """From zero to a round number that nothing is above."""
    most = max(most, 1e-9)
    rough = most / 4
    size = 10.0 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    if most >= 3:
        step = max(1.0, step if step >= 10 else float(ceil(step)))
    top = step * ceil(most / step - 1e-9)
    ticks = tuple(Tick(number * step / top, label(number * step)) for number in range(round(top / step) + 1))
    return Axis(ticks, lambda value: min(1.0, max(0.0, value / top)))


def logarithmic(values: Sequence[float]) -> Axis:
    """For lengths of time: from a tick that is not above the least to one that is not below the greatest."""
    marks = list(_LOG_TICKS)
    above_zero = [value for value in values if value > 0] or [1.0]
    low = max((mark for mark in marks if mark <= min(above_zero)), default=marks[0])
    high = min((mark for mark in marks if mark >= max(above_zero)), default=marks[-1])
    if high <= low:
        place = marks.index(low)
        low, high = marks[max(0, place - 1)], marks[min(len(marks) - 1, place + 1)]
    reach = log10(high) - log10(low)
    between = [mark for mark in marks if low <= mark <= high]
    ticks = tuple(Tick((log10(mark) - log10(low)) / reach, _LOG_TICKS[mark]) for mark in between)
    return Axis(ticks, lambda value: min(1.0, max(0.0, (log10(max(value, low)) - log10(low)) / reach)))


def times(first: datetime, last: datetime, least: timedelta = _MINUTE, most: int = 8) -> tuple[Tick, ...]:
    """Ticks on round times between the two, `most` at most, and not closer than `least`."""
    reach = max(last - first, _MINUTE)
    step = next((step for step in _STEPS if step >= least and reach / step <= most), _STEPS[-1])
    at = _MONDAY + ceil((first - _MONDAY) / step) * step
    found = []
    while at <= last:
        found.append(Tick((at - first) / reach, _label(at, step, reach)))
        at += step
    return tuple(found)


def _label(at: datetime, step: timedelta, reach: timedelta) -> str:
    if step >= _DAY:
        return f"{at.day} {at:%b}" if reach < 300 * _DAY else f"{at:%b %Y}"
    return f"{at.day} {at:%b}" if (at.hour, at.minute) == (0, 0) and reach > _DAY / 2 else f"{at:%H:%M}"
