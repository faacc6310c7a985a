"""Timing, and the table at the end."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison: ours beside something else, taken in turns, and the ratio that the goal speaks of."""

    number: str
    """The design's goal that it answers to (P1 …), or "own" for a mark of ours that the design does not have."""
    name: str
    ours: float | None
    """None: we cannot do it yet."""
    yardstick: float | None
    """None: what it is measured against did not run."""
    unit: str
    against: str
    goal: float | None = None
    """None: for information."""
    at_most: bool = False

    @property
    def ratio(self) -> float | None:
        return None if self.ours is None or not self.yardstick else self.ours / self.yardstick

    @property
    def met(self) -> bool | None:
        if self.ratio is None or self.goal is None:
            return None
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal

    @property
    def mark(self) -> str:
        if self.ours is None:
            return "not yet"
        if self.ratio is None:
            return "not run"
        return {True: "met", False: "MISSED", None: "info"}[self.met]


def rate(work: Callable[[], int]) -> float:
    """Units a second of one run of `work`, which returns how many units it did."""
    started = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - started)


class Turns:
    """Rates by name, taken in turns so that a busy moment of the machine hits all alike."""

    def __init__(self) -> None:
        self._taken: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self._taken.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        """None when it was never taken."""
        return statistics.median(self._taken[name]) if name in self._taken else None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(results: list[Result], notes: list[str]) -> str:
    heading = f"{'goal':<4} {'measure':<43} {'ours':>9} {'beside':>9} {'ratio':>7}  {'wanted':<7}  {'':<7}  against"
    lines = [heading, "-" * 132]
    for result in results:
        ratio = "-" if result.ratio is None else f"{result.ratio:.2f}"
        wanted = "" if result.goal is None else f"{'<=' if result.at_most else '>='} {result.goal:g}"
        mine, theirs = _number(result.ours), _number(result.yardstick)
        lines.append(
            f"{result.number:<4} {result.name:<43} {mine:>9} {theirs:>9} {ratio:>7}  {wanted:<7}  {result.mark:<7}  "
            f"{result.against} ({result.unit})"
        )
    return "\n".join([*lines, "", *notes])


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def as_json(results: list[Result], notes: list[str], about: dict[str, Any]) -> str:
    rows = [{**asdict(result), "ratio": result.ratio, "met": result.met} for result in results]
    return json.dumps({"about": about, "results": rows, "notes": notes}, indent=2)
