"""What a handler can learn and say about its own run, if it asks for it with a parameter called `context`."""

from __future__ import annotations

import math
from typing import Protocol

from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import Job, Progress


class Control(Protocol):
    """The part of a context that whoever runs the job supplies."""

    @property
    def cancelled(self) -> bool: ...

    def notice(self) -> None: ...

    def progress(self, progress: Progress, /) -> None: ...

    def extend(self, seconds: float, /) -> None: ...


class Context:
    """One run of one job."""

    __slots__ = ("_control", "fence", "job")

    def __init__(self, job: Job, fence: int, control: Control) -> None:
        self.job = job
        self.fence = fence
        """A number that rises with every delivery of the job. Send it along with effects outside: who sees a lower
        one than before knows that it comes from a run that has been given up."""
        self._control = control

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempts + 1

    @property
    def cancelled(self) -> bool:
        """Whether the run is to stop: the job was cancelled or is past its timeout, or its worker ends or has lost it.
        A long handler looks now and then, and returns early. However it ends once it has seen this, it has stopped
        and not succeeded: the job is cancelled, failed or put back, as the case may be."""
        told = self._control.cancelled
        if told:
            self._control.notice()
        return told

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the run has come; `harbor.job(id).progress` shows it."""
        for name, value in (("done", done), ("total", total)):
            if value is None and name == "total":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InvalidInput(f"progress: {name} must be a number of at least 0, got {value!r}")
        if not isinstance(note, str):
            raise InvalidInput(f"progress: note must be text, got {type(note).__name__}")
        self._control.progress(Progress(done, total, note))

    def extend(self, seconds: float) -> None:
        """Keep the job for at least that long from now, before something that cannot be interrupted."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise InvalidInput(f"extend takes a number of seconds above 0, got {seconds!r}")
        self._control.extend(seconds)

    @property
    def workflow(self) -> str | None:
        """The id of the workflow that the job is a step of: `harbor.workflow(context.workflow)` shows it."""
        return self.job.meta.get("workflow")

    def __repr__(self) -> str:
        return f"Context({self.job.type} {self.job.id}, attempt {self.attempt}, fence {self.fence})"
