"""What Spark workers have done, as the store has it. What a lost task would have returned, nobody could add up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.model import JobFilter, Status
from taskharbor.pipeline.store import PipelineStore, open_store

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

_COLUMNS: Final = ("worker", "queue", "outcome", "status", "final")
MOST_PAGES: Final = 20
PAGE: Final = 500
PATIENCE_S: Final = 5.0
"""How long the end of a run waits for a transaction of somebody else that holds the feed back."""


class Ledger:
    """The facts of one run in the history feed, from where the feed stood when the run began."""

    def __init__(self, url: str, run: str) -> None:
        self._store: PipelineStore = open_store(url)
        self._run = run
        self._after = self._store.frontier()
        self.outcomes: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Jobs that came to rest, by where: done, dlq and so on."""
        self.workers: set[str] = set()

    def read(self) -> int:
        """Take in what is new, up to a bound that is fixed now; returns the facts of this run so far."""
        import pyarrow.compute as pc

        upto = self._store.frontier()
        if self._store.order_of(upto) > self._store.order_of(self._after):
            for batch in self._store.read_history(self._after, upto, _COLUMNS):
                ours = batch.filter(pc.starts_with(batch["worker"], f"{self._run}-"))
                for row in ours.to_pylist():
                    self._take(row)
            self._after = upto
        return self.outcomes.total()

    def _take(self, row: dict[str, Any]) -> None:
        self.outcomes[row["outcome"]] += 1
        self.workers.add(row["worker"])
        if row["status"] in (Status.DONE, Status.DLQ, Status.CANCELLED, Status.EXPIRED):
            self.ended[row["status"]] += 1

    def close_books(self) -> int:
        """Read the rest. Returns how many rows the feed still holds back, because a transaction of somebody else has
        not ended: they are in the store, and not in these counts."""
        ends = time.monotonic() + PATIENCE_S
        while True:
            self.read()
            back = self._held_back()
            if not back or time.monotonic() >= ends:
                return back
            time.sleep(0.1)

    def _held_back(self) -> int:
        """The feed of PostgreSQL shows nothing that is younger than the oldest open transaction."""
        if self._store.kind != "postgres":
            return 0
        store: Any = self._store
        [(count,)] = store._rows(
            f"SELECT count(*) FROM {store._prefix}history WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) "
            f"AND starts_with(lease_owner, '{self._run}-')"
        )
        return int(count)

    def close(self) -> None:
        self._store.close()


def leases_of(driver: Driver, queues: Sequence[str], run: str) -> list[datetime]:
    """When the leases end that workers of the run hold. Of a queue in which very many jobs run, the newest count."""
    ends = []
    for queue in queues:
        cursor = None
        for _ in range(MOST_PAGES):
            page = driver.list(JobFilter(status=Status.INFLIGHT, queue=queue), cursor, PAGE)
            ends += [
                job.lease_expires_at
                for job in page.jobs
                if job.lease_expires_at is not None and (job.lease_owner or "").startswith(f"{run}-")
            ]
            cursor = page.cursor
            if cursor is None:
                break
    return ends


def waiting(driver: Driver, queues: Sequence[str]) -> int:
    """Jobs that are ready in the queues, due or not."""
    counts = driver.counts().queues
    return sum(counts[queue]["ready"] for queue in queues if queue in counts)
