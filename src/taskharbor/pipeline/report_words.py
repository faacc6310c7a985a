"""Numbers, times and names as a report writes them: short, aligned, and with nothing in them that would not show."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from taskharbor.core.words import NOTHING, compact, count, gist, many, short, size, visible

_UNIT: Final = re.compile(r"(\d) ((?:ms|s|min|h|d|B|kB|MB|GB|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b|%)")
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def share(part: float, *, near_one: bool = False) -> str:
    """42 %, 0.4 %, < 0.1 %. Near one, as many digits as tell it from one."""
    percent = part * 100
    if part <= 0:
        return "0 %"
    if near_one and percent > 99:
        shown = f"{percent:.1f}" if percent < 99.9 else f"{percent:.2f}" if percent < 99.99 else f"{percent:.3f}"
        # What falls short of all must not read as all.
        return "100 %" if part >= 1 else "> 99.99 %" if shown.startswith("100") else f"{shown} %"
    if percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def seconds(length_s: float | None) -> str:
    """0 s, 12 ms, 3.4 s, 5 min, 2.5 h, 3.1 d."""
    if length_s is None:
        return NOTHING
    if length_s < 0:
        return "-" + seconds(-length_s)
    if length_s == 0:
        return "0 s"
    if length_s < 0.0995:
        return f"{length_s * 1000:.0f} ms" if length_s >= 0.00095 else "< 1 ms"
    for limit, unit, part in ((99.5, "s", 1), (5970, "min", 60), (171_000, "h", 3600)):
        if length_s < limit:
            value = length_s / part
            return f"{value:.2f} {unit}" if value < 0.995 else f"{value:.{1 if value < 9.95 else 0}f} {unit}"
    value = length_s / 86_400
    return f"{value:,.{1 if value < 99.5 else 0}f} d"


def rate(number: float, span_s: float) -> str:
    """12/s, 3.4/min, 7/h: by the shortest of these that gives one at least, and never by more than was looked at."""
    found = NOTHING
    for unit, length_s in (("s", 1), ("min", 60), ("h", 3600)):
        if length_s <= span_s:
            found = f"{compact(number * length_s / span_s)}/{unit}"
            if number * length_s >= span_s:
                break
    return found


def moment(at: datetime | None) -> str:
    """Sun 15 Nov 2026, 14:05"""
    if at is None:
        return NOTHING
    there = at.astimezone(UTC)
    return f"{WEEKDAYS[there.weekday()]} {there.day} {there:%b %Y}, {there:%H:%M}"


def brief(at: datetime) -> str:
    """15 Nov, 14:05"""
    there = at.astimezone(UTC)
    return f"{there.day} {there:%b}, {there:%H:%M}"


def hour_of(hour: int) -> str:
    """14 to 15, as one word."""
    return f"{hour:02}\u2013{(hour + 1) % 24:02} h"


def ago(length_s: float | None) -> str:
    if length_s is None:
        return "never"
    return "in the future" if length_s < -60 else "just now" if length_s < 1 else f"{seconds(length_s)} ago"


def glued(text: str) -> str:
    """With each number and its unit on one line."""
    return _UNIT.sub("\\1\u00a0\\2", text)


__all__ = [
    "NOTHING",
    "WEEKDAYS",
    "ago",
    "brief",
    "compact",
    "count",
    "gist",
    "glued",
    "hour_of",
    "many",
    "moment",
    "rate",
    "seconds",
    "share",
    "short",
    "size",
    "visible",
]
