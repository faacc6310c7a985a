"""Forgetting what limits per key and fair shares have of keys and tenants that are long gone, a bit at a time.

A bucket whose tokens have all come back is like one that was never used, and a tenant whose last tag lies behind the
head of its line like one that never came: their rows say nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from taskharbor.core.fairness import HEAD_OF_LINE
from taskharbor.core.limiting import Limit

AT_ONCE: Final = 1_000
"""Rows that one transaction looks at."""
MOST_LINES: Final = 100
LOOK_AGAIN: Final = timedelta(seconds=30)
"""A bucket with benched jobs is looked at after this time even if nothing was heard of it."""


class Resting(NamedTuple):
    """A bucket with tokens and without a bench: the key of its limit, and its tokens when they were counted."""

    bucket: str
    limit: tuple[str, str, str]
    tokens: float | None
    counted_at: datetime | None


class TidyDesk(Protocol):
    """What tidying asks of a store, in one transaction."""

    def hold(self, limits: Sequence[Limit]) -> Sequence[Limit]: ...

    def doubt(self, ids: Sequence[str] | None = None) -> None:
        """Let `lapsed` look at notes of jobs that are not leased with the noted token any more, or not so long; with
        `ids`, of these jobs alone."""
        ...

    def lapsed(self, now: datetime) -> None:
        """Strike notes whose `until` has come, at most some hundred, and wake their buckets as at the end of a job;
        notes of leases that were extended get the new end."""
        ...

    def tags(self, queue: str, priority: int, tenants: Sequence[str]) -> tuple[Mapping[str, int], int]: ...

    def give(self, queue: str, priority: int, tags: Sequence[tuple[str, int]], last: Mapping[str, int]) -> None: ...

    def resting(self, after: str, most: int) -> Sequence[Resting]:
        """Buckets without a bench, in order of their names, behind `after`."""
        ...

    def hurry(self, key: tuple[str, str, str], beyond: datetime, now: datetime) -> None:
        """Look at those buckets of a limit now that were to be looked at behind `beyond`."""
        ...

    def forget(self, buckets: Sequence[str]) -> None: ...

    def next_line(self, queue: str, after: int | None) -> int | None:
        """The lowest priority above `after` with tags in this queue."""
        ...

    def tenants(self, queue: str, priority: int, after: str, most: int) -> Sequence[tuple[str, int]]:
        """Tenants of a line with their tags, in order, behind `after`."""
        ...

    def fade(self, queue: str, priority: int, tenants: Sequence[str]) -> None:
        """Forget the tags of these tenants."""
        ...


def tidy_notes(desk: TidyDesk, limits: Sequence[Limit], now: datetime) -> None:
    """Leases that did not end by a settle or by their time, as those of dead workers, give their places back."""
    desk.hold(limits)
    desk.doubt()
    desk.lapsed(now)


def tidy_buckets(desk: TidyDesk, limits: Sequence[Limit], after: str, now: datetime) -> str:
    """Forget some of the full buckets; where to go on, "" for the beginning."""
    known = {limit.key: limit for limit in desk.hold(limits)}
    for limit in known.values():
        # Whoever was told to wait longer was told by a clock that was wrong.
        desk.hurry(limit.key, now + LOOK_AGAIN + limit.longest_wait, now)
    seen = desk.resting(after, AT_ONCE)
    full = [each.bucket for each in seen if _is_full(each, known.get(each.limit), now)]
    if full:
        desk.forget(full)
    return seen[-1].bucket if len(seen) == AT_ONCE else ""


def _is_full(bucket: Resting, limit: Limit | None, now: datetime) -> bool:
    if limit is None or limit.rate is None or bucket.tokens is None or bucket.counted_at is None:
        return True
    passed = (now - bucket.counted_at).total_seconds()
    return bucket.tokens + passed * limit.rate >= limit.depth


def tidy_line(desk: TidyDesk, queue: str, priority: int, after: str) -> str:
    """Forget some of the tenants that the line has passed; where to go on, "" for the beginning."""
    last, first = desk.tags(queue, priority, [HEAD_OF_LINE])
    head = max(first, last.get(HEAD_OF_LINE, 0))
    # The head never goes back behind this: whoever is forgotten begins there, as without being forgotten.
    desk.give(queue, priority, [], {HEAD_OF_LINE: head})
    seen = desk.tenants(queue, priority, after or HEAD_OF_LINE, AT_ONCE)
    passed = [tenant for tenant, tag in seen if tag <= head]
    if passed:
        desk.fade(queue, priority, passed)
    return seen[-1][0] if len(seen) == AT_ONCE else ""
