"""The bounds every store shares, and the checks that keep to them before anything is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from taskharbor.core.errors import InvalidInput, InvalidLeaseDuration, PayloadTooLarge
from taskharbor.core.model import DEFAULT_LEASE

MAX_ID: Final = 64
MAX_NAME: Final = 255
MAX_TENANT: Final = 64
MAX_KEY: Final = 255
MAX_META_BYTES: Final = 16_384
MAX_ERROR_CHARACTERS: Final = 8_192
MAX_BATCH: Final = 10_000
"""Most jobs one reserve hands out, and most items one settle or extend takes."""
MAX_COUNT: Final = 2**31 - 1
"""How far `count` can be told to go."""
SWEEP_BATCH: Final = 1_000
"""Most lapsed leases, and most expired jobs, that one reserve clears away before it claims."""
MAX_ATTEMPTS: Final = 1_000_000
PRIORITY_RANGE: Final = range(-(2**31) + 1, 2**31)
MAX_DURATION: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an operator may set, the same for every driver."""

    max_payload_bytes: int = 1_048_576
    default_max_attempts: int = 5
    crash_allowance: int = 2
    """Deliveries beyond `max_attempts` that may end without a word from the worker before the job is dead."""

    def check_size(self, data: bytes, what: str) -> None:
        if len(data) > self.max_payload_bytes:
            raise PayloadTooLarge(
                f"{what} has {len(data):,} bytes, the limit is {self.max_payload_bytes:,}: "
                "store the data elsewhere and enqueue a reference to it"
            )


# A lone surrogate cannot be encoded, and PostgreSQL cannot keep NUL in text.
OWN: Final = "\x01"
"""How names of ours begin that stand beside those of queues and tenants."""
_BESIDE_OURS: Final = frozenset({"queue", "tenant", "tenant_id"})
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_CURE_OF_EMPTY: Final = {
    "queue": "give it a name, or leave it out for the default",
    "tenant_id": "give it a name, or leave it out for the default",
    "id": "leave it out, and the job is given one",
    "idempotency_key": "leave it out, or give the text that makes the job unique",
}


def check_name(value: str, what: str, longest: int) -> str:
    if value == "":
        cure = _CURE_OF_EMPTY.get(what, "give it a name")
        raise InvalidInput(f"{what} must not be empty: {cure}")
    checked = check_text(value, what, longest)
    if checked[0] == OWN and what in _BESIDE_OURS:
        raise InvalidInput(f"{what} must not begin with {OWN!r}: TaskHarbor keeps such names for itself")
    return checked


def check_text(value: str, what: str, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, got {type(value).__name__}")
    if len(value) > longest:
        raise InvalidInput(f"{what} has {len(value)} characters, the limit is {longest}")
    if _UNSTORABLE.search(value):
        raise InvalidInput(f"{what} contains NUL or a lone surrogate, which not every store can keep: remove it")
    return value


def is_storable(text: str) -> bool:
    """Whether every store could hold this text."""
    if text.isascii():  # much quicker than the search, and nearly always so
        return "\0" not in text
    return _UNSTORABLE.search(text) is None


def clean_error(text: str) -> str:
    """Error text comes from anywhere, so it is mended instead of refused, and its length is bounded."""
    if _UNSTORABLE.search(text):
        text = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    if len(text) > MAX_ERROR_CHARACTERS:
        half = MAX_ERROR_CHARACTERS // 2 - 20
        # A traceback says where it began at one end and what went wrong at the other: keep both.
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return text


def check_duration(value: timedelta | float, what: str) -> timedelta:
    if isinstance(value, timedelta):
        duration = value
    else:
        try:
            if isinstance(value, bool):  # a number to Python, and never meant as one second
                raise TypeError
            duration = timedelta(seconds=value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(f"{what} must be a timedelta or a number of seconds, got {value!r}") from None
    if not timedelta(0) <= duration <= MAX_DURATION:
        # A timedelta below zero would show as "-1 day, 23:59:55".
        got = f"{duration.total_seconds():g} s" if duration < timedelta(0) else duration
        raise InvalidInput(f"{what} must be from 0 to {MAX_DURATION.days} days, got {got}")
    return duration


def check_lease(lease_for: timedelta | float | None) -> timedelta:
    """The lease asked for, 30 seconds when None."""
    if lease_for is None:
        return DEFAULT_LEASE
    try:
        if isinstance(lease_for, bool):
            raise TypeError
        duration = lease_for if isinstance(lease_for, timedelta) else timedelta(seconds=lease_for)
    except (TypeError, ValueError, OverflowError):
        raise InvalidLeaseDuration(f"lease_for must be a timedelta or seconds, got {lease_for!r}") from None
    if not timedelta(0) < duration <= MAX_DURATION:
        raise InvalidLeaseDuration(f"lease_for must be above zero and at most {MAX_DURATION.days} days, got {duration}")
    return duration
