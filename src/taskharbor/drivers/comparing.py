"""Two stores, read from beginning to end and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from taskharbor.core.carrying import HISTORY, JOBS, Carrier, Place, Row, digest, place_of
from taskharbor.drivers.rows import fact_params, live_params

ROWS_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 4_000_000

Progress = Callable[[int], None]
"""Told how many more rows were copied or compared; each is copied once and compared on both sides."""


class Sum(NamedTuple):
    """The rows of a table: how many, and a number that stands for them."""

    rows: int
    checksum: int


class Portions:
    """How many rows to take next, so that a portion has a few megabytes."""

    def __init__(self) -> None:
        self.limit = max(1, ROWS_AT_ONCE // 10)

    def had(self, rows: Sequence[Row]) -> None:
        size = sum(len(value) for row in rows for value in _large(row)) + 500 * len(rows)
        fitting = self.limit * BYTES_AT_ONCE // size if size else ROWS_AT_ONCE
        self.limit = max(1, min(ROWS_AT_ONCE, 2 * self.limit, fitting))


def portions(carrier: Carrier, table: str, after: Place | None, progress: Progress) -> Iterator[Sequence[Row]]:
    """All rows of a table behind a place, a portion at a time."""
    size = Portions()
    while rows := carrier.take(table, after, size.limit):
        yield rows
        progress(len(rows))
        after = place_of(table, rows[-1])
        size.had(rows)


def sum_of(carrier: Carrier, table: str, progress: Progress) -> Sum:
    count = total = 0
    for rows in portions(carrier, table, None, progress):
        for row in rows:
            count += 1
            # The order of facts is part of what they say.
            total += digest((count, *values_of(table, row)) if table == HISTORY else values_of(table, row))
    return Sum(count, total % 2**128)


def missing_facts(source: Carrier, target: Carrier, progress: Progress) -> tuple[Sum, int]:
    """The facts of the source, and how many of them are not in the target in the same order. The target may have
    others among them: those of what it did itself."""
    count = total = missing = 0
    arrived = (digest(values_of(HISTORY, row)) for rows in portions(target, HISTORY, None, progress) for row in rows)
    for rows in portions(source, HISTORY, None, progress):
        for row in rows:
            count += 1
            wanted = digest(values_of(HISTORY, row))
            total += wanted
            # What the search has passed over is behind it for good: a fact out of its order counts as missing.
            if not any(each == wanted for each in arrived):
                missing += 1
    return Sum(count, total % 2**128), missing


def missing_rows(source: Carrier, target: Carrier, table: str, whole: bool, progress: Progress) -> tuple[Sum, int]:
    """The rows of a table of the source, and how many of them the target has not: as they are if `whole`, else under
    their keys, whatever they say there."""
    count = total = missing = 0
    for rows in portions(source, table, None, progress):
        found = target.find(table, [place_of(table, row) for row in rows])
        there = {digest(row if whole else place_of(table, row)) for row in found}
        progress(len(rows))
        for row in rows:
            count += 1
            total += digest(row)
            missing += digest(row if whole else place_of(table, row)) not in there
    return Sum(count, total % 2**128), missing


def values_of(table: str, row: Row) -> tuple[Any, ...]:
    if table == HISTORY:
        return tuple(fact_params(row[0]).values())
    if table == JOBS:
        return (*live_params(row[0]).values(), *row[1:])
    return row


def _large(row: Row) -> list[bytes]:
    first = row[0]
    job = getattr(first, "job", first)
    return [value for name in ("payload", "result") if isinstance(value := getattr(job, name, None), bytes)]
