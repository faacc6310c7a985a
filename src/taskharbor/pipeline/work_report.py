"""What a run of Spark workers says of itself: while it goes on, and at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class WorkReport:
    """What a run of Spark workers did, as the store has it."""

    run: str
    queues: list[str]
    slots: int
    tasks: int
    workers: list[str] = field(default_factory=list)
    """Those that settled something. A task that Spark started again is another worker."""
    attempts: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    snoozed: int = 0
    released: int = 0
    cancelled: int = 0
    lapsed: int = 0
    """Leases that ended without a word, because their worker was lost."""
    left: int = 0
    """Jobs that wait in the queues still: for a later time, or for somebody who handles them."""
    leased: int = 0
    """Jobs that workers of this run held when they were cut short. They run again when their leases end."""
    uncounted: int = 0
    """Facts that the feed did not show yet, because a transaction of somebody else was open."""
    rounds: int = 0
    ended: str = ""
    """Why: `drained`, `time` or `stopped`."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """What went wrong on the way, each kind once."""
    short: bool = False
    """Whether workers were missing to the end, so that less was done than could have been."""

    def data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a run has come."""

    ended: int
    """Jobs that came to rest: done, dead or cancelled."""
    attempts: int
    total: int
    """What waited when the run began."""
