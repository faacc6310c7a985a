"""How tests wait: for a condition, never for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 60.0


def until(condition: Callable[[], T], what: str = "", patience_s: float = PATIENCE_S, look_s: float = 0.02) -> T:
    """What the condition gives as soon as that is true; the test fails if it takes too long. Looks at least every
    `look_s` seconds: seldom, where a look costs those who work for it their time."""
    ends = time.monotonic() + patience_s
    pause_s = 0.001
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited {patience_s:g} s in vain until {what or condition}"
        time.sleep(pause_s)
        pause_s = min(look_s, pause_s * 1.5)
    return found
