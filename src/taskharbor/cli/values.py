"""What people write behind a flag, read: durations, times, queues with their slots, pairs."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import Final

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,100}")
_LONGEST_S: Final = 3650 * 86_400.0


def duration(text: str) -> timedelta:
    """90, 90s, 5m, 1h30m, 2d."""
    plain = text.strip().lower()
    if _NUMBER.fullmatch(plain):
        seconds = float(plain)
    else:
        parts = _PART.findall(plain)
        if not parts or "".join(number + unit for number, unit in parts) != plain:
            raise ArgumentTypeError(f"{text!r} is not a duration: write 90, 90s, 5m, 1h30m or 2d")
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST_S:
        raise ArgumentTypeError(f"{text!r} is too long: at most 3650d")
    return timedelta(seconds=seconds)


def positive_duration(text: str) -> timedelta:
    found = duration(text)
    if not found:
        raise ArgumentTypeError(f"{text!r} must be above zero")
    return found


def moment(text: str) -> datetime:
    """A time in ISO 8601 with its offset."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time: write it as 2031-05-01T09:00:00+02:00") from None
    if found.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} has no offset: write {found.isoformat()}Z for UTC, or +02:00 and so on")
    return found.astimezone(UTC)


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ArgumentTypeError(f"{text!r} is not a pair: write NAME=VALUE")
    return name, value


def names(text: str) -> tuple[str, ...]:
    """customer,month — by commas."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ArgumentTypeError(f"{text!r} is not a list of names: write NAME or NAME,NAME, each of them once")
    return found


def positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def whole(text: str) -> int:
    """Any whole number, for whoever knows what is wrong with it."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def rate(text: str) -> float:
    """Jobs a second: 5, 0.5, 5/s, 300/m."""
    number, slash, unit = text.strip().lower().partition("/")
    if not _NUMBER.fullmatch(number) or (slash and unit not in ("s", "m", "h")) or not float(number):
        raise ArgumentTypeError(f"{text!r} is not a rate: write 5 or 5/s, 300/m, 100/h")
    return float(number) / _SECONDS[unit or "s"]


def queues(text: str) -> dict[str, int | None]:
    """default:10,mail:2 — each queue with its slots, or without."""
    found: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, slots = part.strip().rpartition(":")
        if not colon:
            name, slots = part.strip(), ""
        if not name or (colon and (not slots.isdecimal() or int(slots) < 1)):
            raise ArgumentTypeError(f"{part!r} is not a queue: write NAME or NAME:SLOTS, such as default:10,mail:2")
        if name in found:
            raise ArgumentTypeError(f"the queue {name!r} is there twice")
        found[name] = int(slots) if slots else None
    return found
