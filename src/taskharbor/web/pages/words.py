"""Numbers, times and texts as the dashboard writes them: short, aligned, with nothing in them that does not show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote, unquote

from taskharbor.core.model import Job
from taskharbor.core.words import NOTHING, compact, count, gist, many, short, size, visible

_CARRIED_AS_IT_IS: Final = " !$&'()*+,-./:;=?@[]_~"


def carried(text: object) -> str:
    """A name as a form carries it from a page back to the server. Some characters of a name cannot stand in a page,
    and what is spelled out for the eye would be another name."""
    return quote(str(text), safe=_CARRIED_AS_IT_IS)


def brought_back(text: str) -> str:
    return unquote(text)


def share(part: float | None) -> str:
    """42 %, 0.4 %, < 0.1 %."""
    if part is None:
        return NOTHING
    percent = part * 100
    if part <= 0:
        return "0 %"
    if percent < 0.1:
        return "< 0.1 %"
    if part < 1 and percent >= 99.5:
        return "> 99 %"
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def seconds(length: float | timedelta | None) -> str:
    """0 s, 12 ms, 3.4 s, 5 min, 2.5 h, 3.1 d."""
    if length is None:
        return NOTHING
    length_s = length.total_seconds() if isinstance(length, timedelta) else length
    if length_s < 0:
        return "-" + seconds(-length_s)
    if length_s == 0:
        return "0 s"
    if length_s < 0.9995:
        return f"{length_s * 1000:.0f} ms" if length_s >= 0.00095 else "< 1 ms"
    for limit, unit, part in ((99.5, "s", 1), (5970, "min", 60), (171_000, "h", 3600)):
        if length_s < limit:
            value = length_s / part
            return f"{value:.{1 if value < 9.95 else 0}f}".removesuffix(".0") + f" {unit}"
    value = length_s / 86_400
    return f"{value:,.{1 if value < 9.95 else 0}f} d"


def exact(at: datetime | None) -> str:
    """2031-05-01 14:05:09.123 UTC, for a title."""
    if at is None:
        return ""
    there = at.astimezone(UTC)
    return f"{there:%Y-%m-%d %H:%M:%S}.{there.microsecond // 1000:03} UTC"


def machine(at: datetime | None) -> str:
    """For the attribute `datetime`, from which the browser keeps relative times true."""
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(at: datetime | None, now: datetime) -> str:
    """3 min ago, in 2 h, just now. The script in the browser says it in the same words."""
    if at is None:
        return NOTHING
    gone = (now - at).total_seconds()
    if abs(gone) < 1:
        return "just now"
    return f"{_rough(gone)} ago" if gone > 0 else f"in {_rough(-gone)}"


def phase(job: Job, now: datetime) -> str:
    return job.phase(now)


def _rough(length_s: float) -> str:
    for limit, unit, part in ((90, "s", 1), (5400, "min", 60), (129_600, "h", 3600)):
        if length_s < limit:
            return f"{round(length_s / part)} {unit}"
    return f"{round(length_s / 86_400):,} d"


__all__ = [
    "NOTHING",
    "ago",
    "brought_back",
    "carried",
    "compact",
    "count",
    "exact",
    "gist",
    "machine",
    "many",
    "phase",
    "seconds",
    "share",
    "short",
    "size",
    "visible",
]
