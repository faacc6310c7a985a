"""What happened, counted: outcomes, and how long jobs waited and ran, in buckets that all of the server shares.

Everything here is whole numbers, so that a sum does not depend on the order in which it was made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from taskharbor.core.answers import Glance
from taskharbor.core.clock import MICROSECOND
from taskharbor.core.model import Outcome

STEPS_OF_DOUBLING: Final = 4
DOUBLINGS: Final = 27
BOUNDS_US: Final = tuple(round(1_000 * 2 ** (step / STEPS_OF_DOUBLING)) for step in range(DOUBLINGS * 4 + 1))
"""The upper bounds of the buckets: from a millisecond to a day and a half, each a fifth above the one before."""

WAIT: Final = "wait"
RUN: Final = "run"
CODE: Final = "code"
SUMS: Final = {WAIT: "wait_us", RUN: "run_us"}

ATTEMPTS: Final = frozenset({Outcome.SUCCEEDED, Outcome.RETRIED, Outcome.DEAD, Outcome.LAPSED, Outcome.CANCELLED})
"""Outcomes that count as an attempt. What was put back (released, snoozed) or never ran (expired) is none."""
FAILURES: Final = frozenset({Outcome.RETRIED, Outcome.DEAD, Outcome.LAPSED})
_HANDLER_ENDED: Final = frozenset(
    {Outcome.SUCCEEDED, Outcome.RETRIED, Outcome.DEAD, Outcome.CANCELLED, Outcome.SNOOZED}
)

# One object for each key: a tally has them by the thousand.
_WAIT_KEYS: Final = tuple((WAIT, bucket) for bucket in range(len(BOUNDS_US) + 1))
_RUN_KEYS: Final = tuple((RUN, bucket) for bucket in range(len(BOUNDS_US) + 1))
_KEYS: Final = {WAIT: _WAIT_KEYS, RUN: _RUN_KEYS}


class Percentiles(NamedTuple):
    """Seconds that half, 95 and 99 of a hundred did not exceed; None when there was nothing to measure."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Tally(dict[Hashable, int]):
    """Counts by outcome, by bucket of wait and of run, and by code of what died."""

    __slots__ = ()

    def count(self, row: Glance, code: str | None = None) -> None:
        """Add one row of the feed; `code` is the one to count it by if it is dead."""
        get = self.get
        outcome = row.outcome
        if row.attempt_no is None and outcome is not Outcome.EXPIRED and outcome is not Outcome.DEAD:
            return  # a job that was cancelled while it waited: nothing ran
        self[outcome] = get(outcome, 0) + 1
        if outcome is Outcome.DEAD and code:
            key = (CODE, code)
            self[key] = get(key, 0) + 1
        started = row.started_at
        if started is None or row.attempt_no is None:
            return
        wait_us = max(0, (started - row.due_at) // MICROSECOND)
        bucket = _WAIT_KEYS[bisect_left(BOUNDS_US, wait_us)]
        self[bucket] = get(bucket, 0) + 1
        self["wait_us"] = get("wait_us", 0) + wait_us
        if outcome in _HANDLER_ENDED:
            run_us = max(0, (row.at - started) // MICROSECOND)
            bucket = _RUN_KEYS[bisect_left(BOUNDS_US, run_us)]
            self[bucket] = get(bucket, 0) + 1
            self["run_us"] = get("run_us", 0) + run_us

    def add(self, other: Tally) -> None:
        get = self.get
        for key, count in other.items():
            self[key] = get(key, 0) + count

    @property
    def attempts(self) -> int:
        return sum(self.get(outcome, 0) for outcome in ATTEMPTS)

    @property
    def failed(self) -> int:
        return sum(self.get(outcome, 0) for outcome in FAILURES)

    def buckets(self, kind: str) -> list[int]:
        """How many fell into each bucket of `WAIT` or `RUN`; the last one is for all above the highest bound."""
        return [self.get(key, 0) for key in _KEYS[kind]]

    def percentiles(self, kind: str) -> Percentiles:
        buckets = self.buckets(kind)
        if not any(buckets):
            return Percentiles()
        return Percentiles(*(quantile(buckets, part) for part in (0.5, 0.95, 0.99)))

    def codes(self) -> dict[str, int]:
        return {key[1]: count for key, count in self.items() if isinstance(key, tuple) and key[0] == CODE}


def quantile(buckets: list[int], part: float) -> float | None:
    """Seconds below which `part` of the measurements lie, to about a tenth; None when there are none."""
    total = sum(buckets)
    if not total:
        return None
    wanted = part * total
    below = 0
    for bucket, count in enumerate(buckets):
        if count and below + count >= wanted:
            low = BOUNDS_US[bucket - 1] if bucket else 0
            high = BOUNDS_US[min(bucket, len(BOUNDS_US) - 1)]
            low = min(low, high)
            return round((low + (high - low) * (wanted - below) / count) / 1e6, 6)
        below += count
    return None


def summed(tallies: Iterable[Tally | None]) -> Tally:
    total = Tally()
    for tally in tallies:
        if tally is not None:
            total.add(tally)
    return total
