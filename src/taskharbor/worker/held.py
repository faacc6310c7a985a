"""A job that this process holds a lease on, from the claim to the settle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskharbor.core.errors import LeaseLost
from taskharbor.core.limits import MAX_DURATION
from taskharbor.core.logged import job_fields
from taskharbor.core.model import Job, LeasedJob, Progress
from taskharbor.core.outcome import CANCELLED_RUNNING, Cancelled

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.core.outcome import Ending


class Held:
    """Made for every job there is, so it is no more than a few fields.

    It is also what a handler's context speaks to: `cancelled`, `progress` and `extend`.
    """

    __slots__ = (
        "abort",
        "asked_s",
        "asked_to_cancel",
        "cancelled",
        "claimed",
        "deadline",
        "ending",
        "job",
        "lost",
        "noticed",
        "overdue",
        "reported",
        "start_is_known",
        "started",
        "started_at",
        "task",
        "token",
    )

    def __init__(self, leased: LeasedJob, task: Task[..., Any] | None, claimed: float, lease_s: float) -> None:
        self.job: Job = leased.job
        self.token: str = leased.lease.token
        self.task = task
        self.claimed = claimed
        self.deadline = claimed + lease_s
        """When the lease ends, by the monotonic clock, if nobody extends it."""
        self.asked_s: float | None = None
        """The lease that the handler asked for with `extend`, until it has been granted."""
        self.started = 0.0
        self.start_is_known = False
        """The store has been told that the handler runs."""
        self.started_at: datetime | None = None
        self.cancelled = False
        """The handler is to stop, for whatever reason."""
        self.noticed = False
        """The handler has looked, and seen that it is to stop."""
        self.asked_to_cancel = False
        """Somebody cancelled the job."""
        self.overdue = False
        """Past its timeout, and nobody can end it: its lease is left to run out."""
        self.lost = False
        """The lease is gone, or has been given back: whatever the handler still does, nothing is settled."""
        self.reported: Progress | None = None
        self.abort: Callable[[], None] | None = None
        """Ends the handler from another thread, where its kind allows that."""
        self.ending: Ending | None = None

    @property
    def is_async(self) -> bool:
        return self.task is not None and self.task.is_async

    @property
    def timeout(self) -> timedelta | None:
        """How long its handler may take."""
        return self.job.timeout

    @property
    def heeded(self) -> bool:
        """Of a job that is cancelled now: whether it ended so because somebody asked, and not by a word of its own
        handler."""
        ending = self.ending
        return self.started_at is not None and not (
            isinstance(ending, Cancelled) and ending.reason != CANCELLED_RUNNING
        )

    def log_fields(self) -> Mapping[str, Any]:
        """For lines of its handler. What goes on when that has ended, as a connection that it opened, is not its."""
        return job_fields(self.job) if self.ending is None else {}

    # --- What a context asks for -------------------------------------------------------------------------

    def progress(self, progress: Progress) -> None:
        """Kept until the next heartbeat takes it to the store."""
        self.reported = progress

    def notice(self) -> None:
        self.noticed = True

    def extend(self, seconds: float) -> None:
        if self.lost:
            raise LeaseLost(f"the lease of job {self.job.id} is lost: stop, what you write now may be done twice")
        self.asked_s = min(seconds, MAX_DURATION.total_seconds())

    # --- What the loops do to it -------------------------------------------------------------------------

    def stop(self) -> None:
        """Tell the handler to stop, and end it if that is possible."""
        self.cancelled = True
        abort = self.abort
        if abort is not None:
            abort()

    def lose(self) -> None:
        self.lost = True
        self.stop()

    def __repr__(self) -> str:
        return f"<held {self.job.type} {self.job.id}>"


class Registry:
    """Everything this process holds, for the heartbeat to look through."""

    def __init__(self) -> None:
        self._by_token: dict[str, Held] = {}
        self._lock = threading.Lock()

    def add(self, items: list[Held]) -> None:
        by_token = {held.token: held for held in items}
        with self._lock:
            self._by_token.update(by_token)

    def remove(self, items: list[Held]) -> None:
        with self._lock:
            for held in items:
                self._by_token.pop(held.token, None)

    def snapshot(self) -> list[Held]:
        with self._lock:
            return list(self._by_token.values())

    def __len__(self) -> int:
        return len(self._by_token)
