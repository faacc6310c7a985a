"""When a failed job runs again. One policy: base, factor, cap, jitter."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_DURATION

Jitter = Literal["none", "proportional", "full"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before retry n (n = failures so far, from 1): `base * factor ** (n - 1)` seconds, at most `cap`.

    Jitter `full` picks uniformly from zero to the delay, `proportional` from half to one and a half times
    the delay (never above the cap), `none` takes the delay itself.
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: Jitter = "full"

    def __post_init__(self) -> None:
        for name in ("base", "factor", "cap"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise InvalidInput(f"Backoff.{name} must be a finite number of at least 0, got {value!r}")
        if self.factor < 1:
            raise InvalidInput(f"Backoff.factor must be at least 1, got {self.factor!r}")
        if self.jitter not in ("none", "proportional", "full"):
            raise InvalidInput(f"Backoff.jitter must be 'none', 'proportional' or 'full', got {self.jitter!r}")

    def delay(self, failures: int, *, uniform: Callable[[float, float], float] = random.uniform) -> timedelta:
        """How long to wait after failure number `failures`."""
        seconds = self._plain_seconds(failures)
        match self.jitter:
            case "full":
                seconds = uniform(0.0, seconds)
            case "proportional":
                seconds = min(self.cap, uniform(seconds * 0.5, seconds * 1.5))
            case "none":
                pass
        # A cap may lie beyond what a date can hold.
        return timedelta(seconds=min(seconds, MAX_DURATION.total_seconds()))

    def _plain_seconds(self, failures: int) -> float:
        if self.base == 0 or self.cap == 0:
            return 0.0
        exponent = max(0, failures - 1)
        # Clamp the exponent before it is raised: 2.0 ** 5000 overflows long before the cap is applied.
        if self.factor > 1:
            # A difference of logarithms, because cap / base may itself overflow when the base is tiny.
            enough = (math.log(self.cap) - math.log(self.base)) / math.log(self.factor)
            exponent = min(exponent, max(0, math.ceil(enough)))
        else:
            exponent = 0
        try:
            return min(self.cap, self.base * self.factor**exponent)
        except OverflowError:
            return self.cap
