"""What a worker has done so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskharbor.core.model import Status
from taskharbor.core.outcome import Ending, Failed, Snoozed

if TYPE_CHECKING:
    from taskharbor.worker.held import Held


@dataclass(slots=True)
class Tally:
    """Counts of ends, for `drain` and the last line of a worker. One thread counts for each queue; a count that is
    off by one because two did at once would harm nobody, and none is ever used to decide anything."""

    done: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    snoozed: int = 0
    released: int = 0
    lost: int = 0
    """Leases that ended under a handler: its work may be done twice."""
    unbegun: int = 0
    """Leases that ended before a handler had begun here: somebody else has those jobs, and nothing is done twice."""

    def count(self, status: Status, ending: Ending | None) -> None:
        match status:
            case Status.DONE:
                self.done += 1
            case Status.DLQ:
                self.dead += 1
            case Status.CANCELLED:
                self.cancelled += 1
            case _ if isinstance(ending, Snoozed):
                self.snoozed += 1
            case _ if isinstance(ending, Failed):
                self.retried += 1
            case _:
                self.released += 1

    def count_lost(self, held: Held) -> bool:
        """Whether a handler had begun, whose work may be done twice."""
        if held.started_at is None:
            self.unbegun += 1
            return False
        self.lost += 1
        return True

    @property
    def ran(self) -> int:
        """Executions of handlers that came to an end."""
        return self.done + self.retried + self.dead + self.cancelled + self.snoozed
