"""What a store answers when it is asked about many jobs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskharbor.core.model import HistoryRow, Job, Status


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
