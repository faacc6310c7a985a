"""What a worker may be told, checked where it is told and not where it is first used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_DURATION

LONGEST_S: Final = MAX_DURATION.total_seconds()


def check_count(name: str, value: Any) -> None:
    """A whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}")


def check_seconds(name: str, value: Any, *, zero: bool = False) -> None:
    """A number of seconds above zero, or from zero on."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and (value > 0 or (zero and value == 0)) and value <= LONGEST_S):  # nan is none of these
        least = "of at least 0" if zero else "above 0"
        raise InvalidInput(f"{name} must be a number of seconds {least}, at most {LONGEST_S:,.0f}, got {value!r}")


def check_retention(value: Any) -> None:
    if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
        raise InvalidInput(
            f"retention must be a timedelta that is not negative, such as timedelta(days=30), got {value!r}: "
            "leave it out to keep jobs for ever"
        )
