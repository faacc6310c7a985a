"""What keeps a group of workers together, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

ANY_TYPE: Final = "*"
OVER_REST: Final = "rest"
"""The version of workers in other languages. They run jobs, and never lead."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process as it describes itself. The store adds `last_heartbeat`.

    `meta` may have `types`: the names of what it handles, with commas between, or `*` for everything.
    """

    id: str
    hostname: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    slots: int = 1
    version: str = ""
    started_at: datetime | None = None
    last_heartbeat: datetime | None = None
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leadership:
    """A won election: valid until `until`, and newer than every leadership with a smaller epoch."""

    name: str
    holder: str
    epoch: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one pass of `recover` found and mended."""

    workers_removed: int = 0
    leases_freed: int = 0
    jobs_expired: int = 0

    def __add__(self, other: Recovery) -> Recovery:
        return Recovery(
            self.workers_removed + other.workers_removed,
            self.leases_freed + other.leases_freed,
            self.jobs_expired + other.jobs_expired,
        )
