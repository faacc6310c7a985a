"""What the loops of a worker share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taskharbor.core.contract import Driver
from taskharbor.core.retry import Backoff
from taskharbor.worker.allowance import Allowance
from taskharbor.worker.held import Registry
from taskharbor.worker.outage import Outage
from taskharbor.worker.quarantine import Quarantine
from taskharbor.worker.tally import Tally

if TYPE_CHECKING:
    from taskharbor.app.task import Task


@dataclass(frozen=True, slots=True)
class Crew:
    driver: Driver
    worker_id: str
    tasks: Mapping[str, Task[..., Any]]
    types: Sequence[str] | None
    retry: Backoff
    lease_s: float
    poll_interval_s: float
    registry: Registry
    quarantine: Quarantine
    outage: Outage
    tally: Tally
    allowance: Allowance
