"""The last hour in memory: tallies by second and by minute, of everything, of each queue and of each tenant.

All of it is bounded: so many series, so many slots in each. What finds no place is still in the sums above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from taskharbor.web.tallies import Tally, summed

HOUR_S: Final = 3_600
MOST_SERIES: Final = 300
"""Of each kind: queues, tenants, and queues of one tenant."""

Key = tuple[str | None, str | None]
"""A tenant and a queue; None is all of them."""


class Ring:
    """The last `size` slots of `step_s` seconds each. What is older than all of them is left out."""

    def __init__(self, step_s: int, size: int) -> None:
        self.step_s = step_s
        self._slots: list[tuple[int, Tally] | None] = [None] * size

    @property
    def span_s(self) -> int:
        return self.step_s * len(self._slots)

    def add(self, second: int, tally: Tally) -> None:
        number = second // self.step_s
        place = number % len(self._slots)
        there = self._slots[place]
        if there is None or there[0] < number:
            self._slots[place] = number, Tally(tally)
        elif there[0] == number:
            there[1].add(tally)

    def between(self, start: int, end: int) -> Iterator[Tally | None]:
        """The slots that begin from `start` up to before `end`, in order; None where nothing happened."""
        for number in range(-(-start // self.step_s), -(-end // self.step_s)):
            there = self._slots[number % len(self._slots)]
            yield there[1] if there is not None and there[0] == number else None


class _Line:
    """One series, in two resolutions."""

    def __init__(self, step_s: int) -> None:
        self.fine = Ring(step_s, 300 // step_s)
        self.coarse = Ring(60, 60)
        self.last = 0

    def add(self, second: int, tally: Tally) -> None:
        self.fine.add(second, tally)
        self.coarse.add(second, tally)
        self.last = max(self.last, second)

    def ring(self, span_s: float, step_s: int) -> Ring:
        """The finest that reaches back so far."""
        return self.fine if span_s <= self.fine.span_s and step_s < 60 else self.coarse


class Column(NamedTuple):
    """Slots of equal length, the first of which begins at `start` (seconds since 1970)."""

    start: int
    step_s: int
    tallies: list[Tally]


class Windows:
    """The whole is kept by the second for five minutes, its parts by five seconds, and all of it by the minute for an
    hour. Not safe to change from several threads at once."""

    def __init__(self) -> None:
        self._whole = _Line(1)
        self._parts: dict[str, dict[Key, _Line]] = {"queue": {}, "tenant": {}, "both": {}}

    def add(self, tenant: str, queue: str, second: int, tally: Tally) -> None:
        self._whole.add(second, tally)
        for kind, key in (("queue", (None, queue)), ("tenant", (tenant, None)), ("both", (tenant, queue))):
            line = self._line(kind, key)
            if line is not None:
                line.add(second, tally)

    def _line(self, kind: str, key: Key) -> _Line | None:
        lines = self._parts[kind]
        line = lines.get(key)
        if line is None and (len(lines) < MOST_SERIES or self._drop_idle(lines)):
            line = lines[key] = _Line(5)
        return line

    def _drop_idle(self, lines: dict[Key, _Line]) -> bool:
        for key in [key for key, line in lines.items() if line.last < self._whole.last - HOUR_S]:
            del lines[key]
        return len(lines) < MOST_SERIES

    def _known(self, tenant: str | None, queue: str | None) -> _Line | None:
        if tenant is None and queue is None:
            return self._whole
        kind = "both" if tenant is not None and queue is not None else "queue" if tenant is None else "tenant"
        return self._parts[kind].get((tenant, queue))

    def column(self, tenant: str | None, queue: str | None, end: float, seconds: float, step_s: int) -> Column:
        """Complete slots before `end`, over as many seconds as the hour has; steps are widened to what is kept."""
        line = self._known(tenant, queue) or _Line(5)
        ring = line.ring(seconds, step_s)
        step_s = max(1, -(-step_s // ring.step_s)) * ring.step_s
        last = int(end) // step_s * step_s
        count = max(1, min(int(seconds), ring.span_s - ring.step_s) // step_s)
        starts = range(last - count * step_s, last, step_s)
        return Column(starts[0], step_s, [summed(ring.between(start, start + step_s)) for start in starts])

    def total(self, tenant: str | None, queue: str | None, end: float, seconds: float) -> Tally:
        """Everything of the last `seconds` before `end`; a slot that is half inside counts as a whole."""
        line = self._known(tenant, queue)
        if line is None:
            return Tally()
        ring = line.ring(seconds, 1)
        start = int(end - seconds) // ring.step_s * ring.step_s
        return summed(ring.between(start, int(end) + ring.step_s + 1))

    def queues(self, tenant: str | None) -> list[str]:
        """Names of the queues in which something happened lately."""
        kind = "queue" if tenant is None else "both"
        return sorted(queue for of, queue in self._parts[kind] if of == tenant and queue is not None)
