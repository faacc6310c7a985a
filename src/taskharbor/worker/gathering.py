"""Fills the batches of one lane with the jobs that its claimers bring.

A batch stands in line for a slot when it is full, when it has waited as long as its task says, or, for a task that
does not wait, as soon as the store has no more. Until a slot begins it, others may still join. How many jobs to ask
for is learned: twice as many as the last look found for batches, so that a lane which finds mostly plain jobs does
not hoard them, and one which finds nothing else soon asks for all it can get.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.model import LeasedJob
from taskharbor.worker.batching import BatchRun, Member
from taskharbor.worker.held import Held

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.worker.lane import Lane

FILL_S: Final = 0.2
"""How long a batch of a task that does not wait may go on to fill while the store has more."""

Tasks = Mapping[str, "Task[..., Any]"]
Key = tuple[str, str | None]


class Gatherer:
    def __init__(self, lane: Lane, tasks: Tasks, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lane = lane
        self._tasks = tasks
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._filling: list[BatchRun] = []
        """Not in line yet."""
        self._open: dict[Key, BatchRun] = {}
        """Those that may be joined, in line or not."""
        self._found: dict[str, int] = {}
        """What the last look found for batches, by type."""
        self._has_more = False

    @staticmethod
    def for_lane(lane: Lane, tasks: Tasks) -> Gatherer | None:
        """None where no task wants batches, so that nobody else pays for them."""
        return Gatherer(lane, tasks) if any(task.batch is not None for task in tasks.values()) else None

    @property
    def is_filling(self) -> bool:
        return bool(self._filling)

    def hold(self, leased: Sequence[LeasedJob], claimed: float, lease_s: float) -> list[Held]:
        items: list[Held] = []
        for item in leased:
            task = self._tasks.get(item.job.type)
            if task is None or task.batch is None:
                items.append(Held(item, task, claimed, lease_s))
            else:
                items.append(Member(item, task, claimed, lease_s))
        return items

    def take(self, items: list[Held]) -> list[Held]:
        """The plain ones of these jobs; those for batches stay here."""
        plain: list[Held] = []
        with self._lock:
            for held in items:
                if isinstance(held, Member):
                    self._place(held)
                else:
                    plain.append(held)
        return plain

    def _place(self, member: Member) -> None:
        task = member.task
        assert task is not None and task.batch is not None
        key = (task.name, member.job.tenant_id if task.batch.by_tenant else None)
        run = self._open.get(key)
        if run is None or not run.join(member):
            run = BatchRun(self._lane, task)
            run.size, run.since = task.batch.size, self._monotonic()
            run.join(member)
            self._open[key] = run
            self._filling.append(run)

    def looked(self, leased: Sequence[LeasedJob], asked: int) -> None:
        """What the store had when it was last asked, for at most so many."""
        found: dict[str, int] = {}
        for item in leased:
            task = self._tasks.get(item.job.type)
            if task is not None and task.batch is not None:
                found[task.name] = found.get(task.name, 0) + 1
        with self._lock:
            self._found = found
            self._has_more = len(leased) >= asked

    def wants(self) -> int:
        """How many more jobs than usual to ask for: no more than one batch of each type can take in."""
        if not self._found:
            return 0
        with self._lock:
            waiting: dict[str, int] = {}
            for run in self._open.values():
                if not run.closed:
                    waiting[run.task.name] = waiting.get(run.task.name, 0) + len(run.members)
            room = sum(max(0, self._size(name) - waiting.get(name, 0)) for name in self._found)
            return min(2 * sum(self._found.values()), room)

    def _size(self, name: str) -> int:
        task = self._tasks.get(name)
        return task.batch.size if task is not None and task.batch is not None else 0

    def send(self, *, no_more: bool = False) -> None:
        """Put what is due into line. `no_more`: no others will come."""
        if not self._filling:
            return
        with self._lock:
            moment = self._monotonic()
            due: list[BatchRun] = []
            filling: list[BatchRun] = []
            for run in self._filling:
                (due if no_more or self._due_at(run) <= moment else filling).append(run)
            if due:
                self._filling = filling
                self._open = {key: run for key, run in self._open.items() if not (run.closed or run.is_full)}
        for run in due:
            self._lane.put(run)

    def wait_s(self) -> float:
        """How long until something is due."""
        with self._lock:
            due_at = min((self._due_at(run) for run in self._filling), default=math.inf)
        return due_at - self._monotonic()

    def _due_at(self, run: BatchRun) -> float:
        batching = run.task.batch
        assert batching is not None
        if run.is_full or (not batching.wait_s and not self._has_more):
            return 0.0
        return run.since + (batching.wait_s or FILL_S)

    def give_up(self) -> list[Held]:
        """Everything that is not in line."""
        with self._lock:
            filling, self._filling = self._filling, []
        return [member for run in filling for member in run.close()]
