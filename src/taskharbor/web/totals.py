"""Counters that only ever rise, for Prometheus: the same function of the feed in every process of a server."""

from __future__ import annotations

from typing import Final

from taskharbor.web.tallies import Tally

OTHER: Final = "other"
MOST_QUEUES: Final = 200
MOST_PAIRS: Final = 4_000
"""Queues of single tenants."""
MOST_CODES: Final = 50


class Totals:
    """Tallies by queue and by tenant and queue since the start of the feed.

    Names are taken in as rows come by, the first so many, and the rest is counted under "other": two readers of one
    feed come to the same numbers, whatever the pages in which they read it.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Tally] = {}
        self._pairs: dict[tuple[str, str], Tally] = {}
        self._codes: set[str] = set()

    def add(self, tenant: str, queue: str, tally: Tally) -> None:
        """Some rows of the feed, in the order in which their tenants and queues came up first."""
        known = self._queues.get(queue)
        if known is None:
            known = self._queues.setdefault(queue if len(self._queues) < MOST_QUEUES else OTHER, Tally())
        known.add(tally)
        pair = self._pairs.get((tenant, queue)) or self._pair(tenant, queue)
        if pair is not None:
            pair.add(tally)

    def _pair(self, tenant: str, queue: str) -> Tally | None:
        if len(self._pairs) < MOST_PAIRS:
            return self._pairs.setdefault((tenant, queue), Tally())
        # Half as many again for the rest of each tenant. Beyond that, a tenant is seen in the sums of all alone.
        rest = self._pairs.get((tenant, OTHER))
        if rest is None and len(self._pairs) < MOST_PAIRS * 3 // 2:
            rest = self._pairs[tenant, OTHER] = Tally()
        return rest

    def code(self, code: str) -> str:
        """The code by which a dead job is counted."""
        if code not in self._codes and len(self._codes) >= MOST_CODES:
            return OTHER
        self._codes.add(code)
        return code

    def by_queue(self, tenant: str | None) -> dict[str, Tally]:
        """Copies, at most MOST_QUEUES of them and "other"."""
        if tenant is None:
            return {queue: Tally(tally) for queue, tally in list(self._queues.items())}
        found: dict[str, Tally] = {}
        for (of, queue), tally in list(self._pairs.items()):
            if of == tenant:
                name = queue if len(found) < MOST_QUEUES else OTHER
                found.setdefault(name, Tally()).add(tally)
        return found
