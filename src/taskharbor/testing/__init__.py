"""Helpers for tests: for those of applications, and for those of drivers.

    from taskharbor.testing import assert_enqueued, drain, enqueued, in_memory, inline
    from taskharbor.testing import DriverContract  # the suite for people who write a driver

The suite needs pytest; the rest of this package does not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from taskharbor.core.errors import MissingExtra
from taskharbor.testing.assertions import assert_enqueued, enqueued
from taskharbor.testing.running import inline
from taskharbor.testing.swapping import drain, in_memory
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND, FakeClock

if TYPE_CHECKING:
    from taskharbor.testing.contract import DriverContract

if (pytest := sys.modules.get("pytest")) is not None:
    # Before they are imported, so that a broken promise shows both sides of the comparison it failed.
    pytest.register_assert_rewrite("taskharbor.testing.contract", "taskharbor.testing.helpers")


def __getattr__(name: str) -> object:
    """`DriverContract`, imported when it is asked for, because pytest comes with it."""
    if name != "DriverContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from taskharbor.testing.contract import DriverContract
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pytest":
            raise
        raise MissingExtra("the contract suite needs pytest: pip install 'taskharbor[dev]', or pytest alone") from None
    return DriverContract


__all__ = [
    "DAY",
    "HOUR",
    "MICROSECOND",
    "MINUTE",
    "NOON",
    "SECOND",
    "DriverContract",
    "FakeClock",
    "assert_enqueued",
    "drain",
    "enqueued",
    "in_memory",
    "inline",
]
