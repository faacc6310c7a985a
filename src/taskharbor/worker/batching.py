"""A batch in the worker: the jobs that one call of a handler is for, and what becomes of each.

Every job of a batch keeps a lease of its own, and so a place of its own in the registry: the heartbeat extends it,
loses it or brings its cancel as for any other job. The batch is what stands in line for a slot, and takes one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskharbor.app.batches import LOST, OPEN
from taskharbor.core.errors import JobNotInflight
from taskharbor.core.logged import batch_fields
from taskharbor.core.model import Job, LeasedJob
from taskharbor.core.outcome import CANCELLED_WAITING, Cancelled, Ending, Released
from taskharbor.worker.held import Held

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.worker.executor import Executor
    from taskharbor.worker.lane import Lane


class Member(Held):
    """A held job whose handler runs for others as well. It is what an item of the batch speaks to."""

    __slots__ = ("run",)

    def __init__(self, leased: LeasedJob, task: Task[..., Any], claimed: float, lease_s: float) -> None:
        super().__init__(leased, task, claimed, lease_s)
        self.run: BatchRun | None = None

    @property
    def timeout(self) -> timedelta | None:
        return self.job.timeout if self.run is None else self.run.timeout

    @property
    def state(self) -> str:
        if self.lost:
            return LOST
        return OPEN if self.ending is None else type(self.ending).__name__.lower()

    def stop(self) -> None:
        """Its neighbours go on. The handler is ended when nobody is left who needs it."""
        self.cancelled = True
        if self.run is not None:
            self.run.leave(self)

    def done(self, result: Any) -> bool:
        run = self.run
        assert run is not None
        return self.settle(run.executor.done(self, result))

    def raised(self, error: BaseException) -> bool:
        run = self.run
        assert run is not None
        return self.settle(run.executor.after(self, error, is_ours=False))

    def settle(self, ending: Ending) -> bool:
        """This is how the job ends, which the store is told as soon as may be. False if it is no longer ours."""
        run = self.run
        assert run is not None
        with run.lock:
            if self.lost:
                return False
            if self.ending is not None:
                raise JobNotInflight(f"job {self.job.id} of the batch was settled before, as {self.state}")
            self.ending = ending
        run.leave(self)
        run.lane.tell(self)
        return True


class BatchRun:
    """Some members for one call of the handler. Others may join until a slot begins it."""

    def __init__(self, lane: Lane, task: Task[..., Any], members: Sequence[Member] = ()) -> None:
        self.lane = lane
        self.task = task
        self.members: list[Member] = []
        self.since = time.monotonic()
        """When the first member came."""
        self.size = 0
        """How many members it may have."""
        self.closed = False
        self.over = False
        self.timeout: timedelta | None = None
        """The shortest of its members': together they have no more time than any one of them."""
        self.abort: Callable[[], None] | None = None
        """Ends the handler from another thread, where its kind allows that."""
        self.executor: Executor
        self.lock = threading.Lock()
        self._going: set[Member] = set()
        """Those that still want the handler to go on."""
        for member in members:
            self._take(member)

    @property
    def is_async(self) -> bool:
        return self.task.pool == "async"

    @property
    def job(self) -> Job:
        """One of them, for a word about all."""
        return self.members[0].job

    @property
    def token(self) -> str:
        return self.members[0].token

    @property
    def asked_to_cancel(self) -> bool:
        return False  # of a run as a whole: its members know, each for itself

    @property
    def open(self) -> list[Member]:
        return [member for member in self.members if member.ending is None and not member.lost]

    @property
    def lost(self) -> bool:
        """Nothing of it is ours any more, whatever the handler still does."""
        return all(member.lost for member in self.members)

    @property
    def is_full(self) -> bool:
        return len(self.members) >= self.size

    def join(self, member: Member) -> bool:
        """False if it is full, or has begun."""
        with self.lock:
            if self.closed or self.is_full:
                return False
            self._take(member)
            return True

    def _take(self, member: Member) -> None:
        self.members.append(member)
        member.run = self

    def close(self) -> list[Member]:
        """Nobody joins any more."""
        with self.lock:
            self.closed = True
            return self.members

    # --- The slot's side ---------------------------------------------------------------------------------

    def begin(self, executor: Executor, now: datetime) -> bool:
        """False if there is nothing to begin. Members that were cancelled, lost or expired while they waited take no
        part."""
        self.close()
        self.executor = executor
        moment = self.lane.note_begin(self)
        waiting, self.members = self.members, []
        for member in waiting:
            if member.cancelled or moment >= member.deadline:
                member.ending = Cancelled(CANCELLED_WAITING) if member.asked_to_cancel else Released()
            elif member.job.expires_at is not None and member.job.expires_at <= now:
                member.ending = Released()  # the store says so to everybody else
            else:
                member.started, member.started_at = moment, now
                self.members.append(member)
                continue
            self.lane.tell(member)
        timeouts = [member.job.timeout for member in self.members if member.job.timeout is not None]
        self.timeout = min(timeouts, default=None)
        with self.lock:
            self._going.update(member for member in self.members if not member.cancelled)
        return bool(self.members)

    def leave(self, member: Member) -> None:
        """One has ended, or is to stop. When all that are left are to stop, the handler is."""
        with self.lock:
            self._going.discard(member)
            stop = self.closed and not self.over and self.cancelled
        abort = self.abort
        if stop and abort is not None:
            abort()

    @property
    def cancelled(self) -> bool:
        """Whether the handler runs for nobody any more, and has not ended all of them itself."""
        return not self._going and any(member.ending is None or member.lost for member in self.members)

    def end(self, ending: Ending) -> None:
        """The same end for all that are left."""
        for member in self.open:
            with suppress(JobNotInflight):  # a thread that outlives the handler was quicker
                member.settle(ending)

    def log_fields(self) -> Mapping[str, Any]:
        return {} if self.over else batch_fields([member.job for member in self.members])

    def finish(self) -> None:
        """The slot is free again."""
        self.over = True
        self.abort = None
        self.lane.note_end(self)

    def __repr__(self) -> str:
        return f"<batch of {len(self.members)} {self.task.name}>"
