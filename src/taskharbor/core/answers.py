"""What a store answers when it is asked about many jobs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from taskharbor.core.model import HistoryRow, Job, Outcome, Status


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Rows of the feed and the cursor that continues behind them (given even when there are none)."""

    rows: Sequence[HistoryRow]
    cursor: str


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest id first, and the cursor of the next page (None on the last)."""

    jobs: Sequence[Job]
    cursor: str | None


class Counts(dict[str, int]):
    """Jobs by status over all queues; `queues` has the same for each queue, `scheduled` the part of
    ready that is not due yet."""

    def __init__(self, queues: Mapping[str, Mapping[str, int]], scheduled: int) -> None:
        super().__init__({status.value: 0 for status in Status})
        self.queues: dict[str, dict[str, int]] = {}
        self.scheduled = scheduled
        for queue, by_status in sorted(queues.items()):
            self.queues[queue] = {s.value: by_status.get(s.value, 0) for s in Status}
            for status, count in by_status.items():
                self[status] += count


class CensusRow(NamedTuple):
    """How many jobs of one tenant, in one queue, stand in one state. Only what there is has a row.

    `scheduled` is the part of ready that is not due yet; `oldest_due` is when the first of the others became due.
    """

    tenant_id: str
    queue: str
    status: Status
    count: int  # type: ignore[assignment]  # in place of a method of tuples that nobody needs here
    scheduled: int = 0
    oldest_due: datetime | None = None


class Glance(NamedTuple):
    """The outline of one row of the feed: everything that counting and measuring needs, and no payload.

    What belongs to an attempt is None where the row is of a job that was not running.
    """

    job_id: str
    type: str
    queue: str
    tenant_id: str
    outcome: Outcome
    status: Status
    at: datetime
    due_at: datetime
    started_at: datetime | None
    attempt_no: int | None
    worker: str | None
    code: str | None


@dataclass(frozen=True, slots=True)
class Glances:
    """Outlines in the order of the feed, and the cursor that continues behind them (given even when there are none)."""

    rows: Sequence[Glance]
    cursor: str
