"""The driver contract: what every store promises. Narrow protocols and their union.

Drivers store, fence and move state; callers decide. Every call takes `now`, so that tests and workers agree on
the time; None means the store's own clock. Drivers are synchronous and safe to use from many threads.
`taskharbor.testing.DriverContract` states each promise below as a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from taskharbor.core.access import Access
from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.errors import TaskHarborError
from taskharbor.core.fleet import Leadership, Recovery, Worker
from taskharbor.core.governing import Governing
from taskharbor.core.model import (
    Attempt,
    Enqueued,
    Extension,
    Job,
    JobFilter,
    Lease,
    LeasedJob,
    NewJob,
    QueueSettings,
    RetryUpdate,
    Schedule,
    Settlement,
    Status,
)
from taskharbor.core.workflow import NewWorkflow, Step, StepCounts, StepResult, Workflow

Duration = timedelta | float
"""A timedelta, or a number of seconds."""

Answers = list[Enqueued]
Leased = list[LeasedJob]
Settled = list[Status | TaskHarborError]
"""For each settlement, where the job stands now or what went wrong with this one."""
Extended = list[Lease | TaskHarborError]
"""For each extension, the lease as it is now or what went wrong with this one."""


@runtime_checkable
class Listener(Protocol):
    """Tells a worker that it is worth looking. Only a hint, and never needed: a listener may speak without a cause
    and may miss what happened, so whoever waits on one looks from time to time anyway. It never raises because the
    store is away; then it waits, and returns False."""

    def wait(self, timeout_s: float) -> bool:
        """True soon after a job may have become available in one of the queues, False after the time."""
        ...

    def wake(self) -> None:
        """A `wait` of another thread returns True at once; with none going on, the next one does."""
        ...

    def close(self) -> None:
        """Give back every resource, and end a `wait` that is going on. Later waits return False at once."""
        ...


@runtime_checkable
class Queueing(Protocol):
    """The seven operations of a queue, release, and their batch forms."""

    def enqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any = None) -> Answers:
        """All of the jobs are stored, or none. With `connection`, they exist exactly if its owner commits."""
        ...

    def reserve(
        self,
        queues: str | Sequence[str],
        *,
        now: datetime | None = None,
        lease_for: Duration | None = None,
        limit: int = 1,
        types: Sequence[str] | None = None,
        owner: str = "",
        tenant: str | None = None,
    ) -> Leased:
        """At most `limit` runnable jobs, each leased to this caller alone with a fresh token.

        Highest priority first, then the moment they became due, then id. Jobs whose lease has ended are runnable
        again; expired and terminal jobs and paused queues give nothing. An empty list means nothing is runnable.

        With `types` or `tenant`, only jobs of these types, or of this tenant. They are plain filters: the claim walks
        over due jobs of others that stand before these, so its cost grows with their number.
        """
        ...

    def extend_lease(
        self, id: str, token: str, *, now: datetime | None = None, lease_for: Duration | None = None
    ) -> Lease:
        """The lease now ends `lease_for` after `now`. The token stays. Tells whether a cancel was asked for."""
        ...

    def extend(self, extensions: Sequence[Extension], *, now: datetime | None = None) -> Extended:
        """Many leases at once; one that is lost does not disturb the others."""
        ...

    def ack(self, id: str, token: str, *, now: datetime | None = None, result: bytes | None = None) -> None:
        """The job is done. Again with the same token: succeeds and changes nothing."""
        ...

    def retry(self, id: str, token: str, *, now: datetime | None = None, update: RetryUpdate) -> None:
        """The job is ready again at `update.run_at`, with the failure recorded as given."""
        ...

    def fail(
        self, id: str, token: str, *, now: datetime | None = None, reason: str, code: str = "unrecoverable"
    ) -> None:
        """The job is in the DLQ. Again with the same token: succeeds and changes nothing."""
        ...

    def release(self, id: str, token: str, *, now: datetime | None = None) -> None:
        """The job is ready again where it was in line, and nothing is held against it."""
        ...

    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Settled:
        """Many leases ended at once. For each its new status or its own error; a stale one harms no other."""
        ...

    def settle_and_reserve(
        self,
        settlements: Sequence[Settlement],
        queues: str | Sequence[str],
        *,
        now: datetime | None = None,
        lease_for: Duration | None = None,
        limit: int = 1,
        types: Sequence[str] | None = None,
        owner: str = "",
        tenant: str | None = None,
    ) -> tuple[Settled, Leased]:
        """`settle`, then `reserve`, in one round trip where the store can."""
        ...

    def listen(self, queues: str | Sequence[str]) -> Listener:
        """A listener for new work in these queues, for one waiting thread. What comes in once this has returned is
        heard of. Closing the driver closes it."""
        ...

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def migrate(self) -> None:
        """Bring the tables to the version this driver needs. Safe to call always, and by many at once."""
        ...

    def close(self) -> None:
        """Give back every resource. Later calls raise DriverClosed; closing twice is fine."""
        ...


@runtime_checkable
class Inspection(Protocol):
    """What people and tools ask about jobs, and what they do to them by hand."""

    def get(self, id: str) -> Job:
        """The job, live or finished; JobNotFound if there is none."""
        ...

    def list(self, filter: JobFilter | None = None, cursor: str | None = None, limit: int = 100) -> Page:
        """Jobs that match, newest id first. Following the cursor meets every job that stays in place once."""
        ...

    def counts(self) -> Counts:
        """How many jobs stand where."""
        ...

    def census(self, now: datetime | None = None) -> Sequence[CensusRow]:
        """How many jobs of each tenant stand where in each queue, in order of tenant, queue and status. It reads all
        that is kept, so a large store should not be asked often."""
        ...

    def count(self, filter: JobFilter | None = None, limit: int = 10_001) -> int:
        """How many jobs match, or `limit` if there are that many: counting stops there."""
        ...

    def attempts(self, id: str) -> Sequence[Attempt]:
        """Every attempt of the job, oldest first, each written together with its settle."""
        ...

    def history(self, cursor: str | None = None, limit: int = 1000) -> HistoryPage:
        """Finished attempts and terminal jobs in commit-safe order: following the cursor skips no committed row
        and repeats none, whatever else is being written."""
        ...

    def latest(self, after: str | None = None, limit: int = 1000) -> Glances:
        """Rows of the feed in outline, without payloads. With a cursor, those behind it, in the order and with the
        promise of `history`; without one, the newest, in the same order, and the cursor of the feed's end. Cursors
        are those of `history`: each of the two goes on where the other has come to."""
        ...

    def cancel(self, id: str, *, now: datetime | None = None) -> Status:
        """A ready job is cancelled; an inflight one is asked to stop. Terminal jobs stay as they are.
        Returns the status after the call."""
        ...

    def redrive(
        self,
        filter: JobFilter | None = None,
        *,
        now: datetime | None = None,
        limit: int | None = None,
        run_at: datetime | None = None,
        rate: float | None = None,
        reset_attempts: bool = False,
        clone: bool = False,
    ) -> Sequence[str]:
        """Send DLQ jobs that match back to ready, oldest id first, and return the ids that will run.

        `rate` (jobs a second) spreads them over time. `clone` leaves the DLQ job and enqueues a copy.
        """
        ...

    def purge(self, filter: JobFilter | None = None, *, limit: int | None = None) -> int:
        """Remove DLQ jobs that match for good (their attempts stay in history); returns how many."""
        ...

    def pause(self, queue: str) -> None:
        """Reserve gives nothing from this queue until `resume`. Running jobs go on."""
        ...

    def resume(self, queue: str) -> None:
        """Undo `pause`."""
        ...

    def queues(self) -> Sequence[QueueSettings]:
        """The settings of every queue that has any."""
        ...


@runtime_checkable
class Fleet(Protocol):
    """What keeps a group of workers together. Leases alone suffice when none of it runs."""

    def heartbeat(self, worker: Worker, *, now: datetime | None = None) -> None:
        """The worker is alive at `now`. The first one registers it."""
        ...

    def workers(self) -> Sequence[Worker]:
        """Every registered worker, by id."""
        ...

    def deregister(self, worker_id: str) -> None:
        """The worker is gone in good order. Unknown ids are fine."""
        ...

    def elect(
        self, name: str, holder: str, now: datetime | None = None, term: Duration = 30.0, *, epoch: int | None = None
    ) -> Leadership | None:
        """Bid for the leadership `name`. At most one holder wins it until its term ends, and each new winner has a
        higher epoch. The holder renews an unexpired term by bidding again; with `epoch`, only that very term. The
        name of a holder must be its own: two that share one would both be told that they lead."""
        ...

    def resign(self, name: str, holder: str, epoch: int) -> None:
        """Give up the leadership, if it is still this one, so that the next bid can win at once."""
        ...

    def leaders(self) -> Sequence[Leadership]:
        """The last winner of every election, current or not."""
        ...

    def recover(self, now: datetime | None = None, *, dead_after: Duration = 30.0) -> Recovery:
        """One bounded pass: remove workers silent for `dead_after` and free their leases, take back ended leases,
        expire jobs past their time. Call again while it finds something."""
        ...

    def prune(
        self, before: datetime, *, limit: int = 10_000, ids: Sequence[str] | None = None, upto: str | None = None
    ) -> int:
        """Forget at most `limit` jobs that ended before `before`, oldest first, each with its attempts and its
        idempotency key. Jobs in the DLQ stay. With `ids`, no others than these. With `upto`, a cursor of `history`,
        none with a row behind it: a reader that has come as far loses nothing. Returns how many went."""
        ...


@runtime_checkable
class Scheduling(Protocol):
    """Where schedules are kept. Stores know no cron: callers work out when the next tick is."""

    def put_schedule(self, schedule: Schedule, *, now: datetime | None = None) -> Schedule:
        """Create the schedule, or replace the definition of that name, and return it as it is kept now.

        What is not part of the definition survives a replacement: `paused`, `last_run_at`, `last_job_id`, and
        `next_run_at` as long as neither `spec` nor `timezone` changes.
        """
        ...

    def schedules(self) -> Sequence[Schedule]:
        """Every schedule, by name."""
        ...

    def get_schedule(self, name: str) -> Schedule:
        """The schedule; ScheduleNotFound if there is none."""
        ...

    def pause_schedule(self, name: str, *, paused: bool, now: datetime | None = None) -> None:
        """Mark the schedule paused, or not; ScheduleNotFound if there is none."""
        ...

    def remove_schedule(self, name: str) -> bool:
        """Forget the schedule; whether there was one. Jobs it has enqueued stay."""
        ...

    def advance_schedule(
        self,
        name: str,
        *,
        expected: datetime | None,
        next_run_at: datetime | None,
        last_run_at: datetime | None = None,
        last_job_id: str | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Set `next_run_at` if it still is `expected`: of many callers that expect the same, exactly one is told
        True. What is given of `last_run_at` and `last_job_id` is set with it. False if there is no such schedule."""
        ...


@runtime_checkable
class Workflows(Protocol):
    """Jobs that wait for other jobs. A step is a job like any other; a workflow is the rows beside it."""

    def start_workflow(self, flow: NewWorkflow, *, now: datetime | None = None) -> str:
        """Store a workflow with all its steps, and let those go that wait for nothing; returns its id. If the caller
        dies meanwhile, it starts as a whole or not at all; if somebody cancels it meanwhile, not at all. A cycle, an
        unknown step or a bad job is refused before anything is written."""
        ...

    def advance(self, ids: Sequence[str], *, now: datetime | None = None) -> None:
        """Move the workflows on whose steps these jobs are, as far as the jobs have come: what no step before it holds
        back any more is ready. Called by the driver itself after every settle; calling it again changes nothing."""
        ...

    def mend_workflows(self, *, now: datetime | None = None) -> int:
        """One bounded pass over workflows that nobody has moved on though their steps have ended, or that are cancelled
        in part; how many steps and workflows it found. Part of `recover`."""
        ...

    def get_workflow(self, id: str) -> Workflow:
        """The workflow; WorkflowNotFound if there is none."""
        ...

    def list_workflows(self, cursor: str | None = None, limit: int = 100) -> Sequence[Workflow]:
        """Newest id first; `cursor` is the id of the last one seen, InvalidCursor if it cannot be one."""
        ...

    def workflow_steps(self, id: str, after: int | None = None, limit: int = 1000) -> Sequence[Step]:
        """The steps in order of their numbers, behind the number `after`."""
        ...

    def workflow_counts(self, id: str) -> Sequence[StepCounts]:
        """How many steps of each part stand where."""
        ...

    def workflow_edges(self, id: str, limit: int = 10_000) -> Sequence[tuple[int, int]]:
        """Which step (the second number) waits for which (the first), at most `limit` of them."""
        ...

    def step_results(
        self, id: str, part: str | None = None, after: int | None = None, limit: int = 1000
    ) -> Sequence[StepResult]:
        """What steps have given as results, in order of their numbers, of one part or of all."""
        ...

    def cancel_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        """Nothing of it begins any more, and what runs is asked to stop. One that is done stays so. If the caller dies
        meanwhile, it is `cancelling` until `mend_workflows` has finished that."""
        ...

    def redrive_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        """A workflow that has failed goes on: its dead steps come back from the DLQ, and what was held back with them
        goes its way, at its own time. InvalidInput, and nothing changes, if a step was cancelled, has expired or was
        purged, unless the workflow continues without and another can come back."""
        ...


@runtime_checkable
class Driver(Queueing, Inspection, Fleet, Scheduling, Governing, Workflows, Access, Protocol):
    """Everything a store does."""
