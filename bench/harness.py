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
    """One comparison: our rate beside the yardstick's, taken in turns, and the ratio the goal speaks of."""

    name: str
    ours: float
    yardstick: float
    unit: str
    against: str
    goal: float
    at_most: bool = False

    @property
    def ratio(self) -> float:
        return self.ours / self.yardstick

    @property
    def met(self) -> bool:
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal


def rate(work: Callable[[], int]) -> float:
    """Units a second of one run of `work`, which returns how many units it did."""
    started = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - started)


def in_turns(rounds: int, ours: Callable[[], float], yardstick: Callable[[], float]) -> tuple[float, float]:
    """Medians of both, measured alternately so that a busy moment of the machine hits them alike."""
    pairs = [(ours(), yardstick()) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(results: list[Result]) -> str:
    lines = [
        f"{'measure':<46} {'ours':>10} {'beside':>10}  {'ratio':>6}  {'goal':>7}  against",
        "-" * 112,
    ]
    for result in results:
        sign = "<=" if result.at_most else ">="
        mark = "met" if result.met else "MISSED"
        lines.append(
            f"{result.name:<46} {result.ours:>10,.0f} {result.yardstick:>10,.0f}  {result.ratio:>6.2f}  "
            f"{sign} {result.goal:<4.2f}  {mark:<6} {result.against} ({result.unit})"
        )
    return "\n".join(lines)


def as_json(results: list[Result], about: dict[str, Any]) -> str:
    rows = [{**asdict(result), "ratio": result.ratio, "met": result.met} for result in results]
    return json.dumps({"about": about, "results": rows}, indent=2)
