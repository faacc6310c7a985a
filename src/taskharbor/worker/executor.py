"""Runs the handler of one job and says how it ended. Touches no store."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from contextvars import Context as Variables
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from taskharbor.app.context import Context, Control
from taskharbor.core.errors import DecryptionFailed, EncryptionKeyMissing, InvalidPayload
from taskharbor.core.limits import Limits
from taskharbor.core.logged import running
from taskharbor.core.model import Job, Reason
from taskharbor.core.outcome import (
    CANCELLED_RUNNING,
    TIMED_OUT,
    Cancelled,
    Dead,
    Done,
    Ending,
    Failed,
    HandlerSignal,
    Released,
    Snoozed,
    ending_of,
)

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.worker.held import Held
    from taskharbor.worker.processes import Processes

MOST_FRAMES: Final = 30
SUCCEEDED: Final = Done()
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0
"""How long a job is put back for whose key is not here: at first, and at most."""


class Running(Control, Protocol):
    """What is known of a job while its handler runs, in this process or in a child."""

    job: Job
    task: Task[..., Any] | None
    asked_to_cancel: bool
    noticed: bool
    overdue: bool

    @property
    def timeout(self) -> timedelta | None: ...

    def log_fields(self) -> Mapping[str, Any]: ...


class Executor:
    """How a handler is called, the same for every kind of slot."""

    def __init__(self, limits: Limits, processes: Processes | None = None) -> None:
        self._limits = limits
        self.processes = processes

    def run(self, held: Held) -> Ending:
        """A handler that is a plain function, in the calling thread or in the process that belongs to it."""
        task = held.task
        if task is not None and task.pool == "process" and self.processes is not None:
            return self.processes.run(held)
        return self.call(held)

    def call(self, held: Running) -> Ending:
        """A plain function, here and now."""
        try:
            task, arguments = self.prepared(held)
            # In a context of its own: what one job sets in a ContextVar is not for the next to see.
            variables = Variables()
            variables.run(running.set, held)
            value = variables.run(task.function, **arguments)
        except BaseException as error:
            return self.after(held, error)
        if held.cancelled and held.noticed:
            return stopped(held)
        return SUCCEEDED if value is None else self._done(held.job, task, value)

    async def arun(self, held: Held) -> Ending:
        """A handler that is a coroutine function, in the running loop."""
        timeout = held.job.timeout
        limit: asyncio.Timeout | None = None
        try:
            task, arguments = self.prepared(held)
            if timeout is None:
                value = await task.function(**arguments)
            else:
                limit = asyncio.timeout(timeout.total_seconds())
                async with limit:
                    value = await task.function(**arguments)
        except TimeoutError as error:
            if timeout is not None and limit is not None and limit.expired():
                return timed_out(timeout.total_seconds())
            return self.after(held, error)
        except BaseException as error:
            return self.after(held, error)
        if timeout is not None and limit is not None and limit.expired():
            return timed_out(timeout.total_seconds())  # it was cancelled, caught that and returned
        if held.cancelled and (held.noticed or was_cancelled()):
            return stopped(held)
        return SUCCEEDED if value is None else self._done(held.job, task, value)

    def prepared(self, held: Running) -> tuple[Task[..., Any], dict[str, Any]]:
        """The task of the job, and what its function is called with."""
        task, job, arguments = self.opened(held)
        if task.wants_context:
            arguments["context"] = Context(job, job.deliveries, held)
        return task, arguments

    def opened(self, held: Running) -> tuple[Task[..., Any], Job, dict[str, Any]]:
        """The task of the job, the job in plain, and its arguments."""
        task = held.task
        if task is None:
            raise _NoHandler(f"no handler for jobs of type {held.job.type!r} in this worker")
        try:
            job = task.opened(held.job)
            arguments = task.arguments(job.payload)
        except (InvalidPayload, DecryptionFailed) as error:
            raise _BadPayload(f"{type(error).__name__}: {task.told(error)}") from None
        except EncryptionKeyMissing as error:
            raise _NoKey(str(error)) from None
        return task, job, arguments

    def done(self, held: Running, value: Any) -> Ending:
        """The end of a job that its handler says is done."""
        assert held.task is not None
        return SUCCEEDED if value is None else self._done(held.job, held.task, value)

    def _done(self, job: Job, task: Task[..., Any], value: Any) -> Ending:
        try:
            result = task.result_for(job, value)
            if result is not None:
                self._limits.check_size(result, "the result")
        except Exception as error:  # a codec of somebody else's may raise anything
            # The work is done, and would be done again and again for a result that no store will take.
            return Dead(f"the handler succeeded, but its result cannot be kept: {task.told(error)}")
        return Done(result)

    def after(self, held: Running, error: BaseException, *, is_ours: bool = True) -> Ending:
        """The end of a job whose handler raised this. `is_ours`: it was caught here, and its first frame is ours."""
        match error:
            case HandlerSignal():
                try:
                    return ending_of(error)
                except Exception:  # a subclass of somebody else's that lacks what it should have
                    return failed(error, held.task)
            case _NoHandler():
                return Dead(str(error), Reason.NO_HANDLER)
            case _BadPayload():
                return Dead(str(error), Reason.BAD_PAYLOAD)
            case _NoKey():
                # Another worker has the key, or this one will: the job waits, longer each time, and burns nothing.
                pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(held.job.forgiven, 10))
                return Snoozed(timedelta(seconds=pause_s), str(error))
            case _ if held.cancelled and (held.noticed or isinstance(error, asyncio.CancelledError)):
                return stopped(held)
            case _:
                return failed(error, held.task, is_ours=is_ours)


def stopped(held: Running) -> Ending:
    """A handler that was told to stop, saw it, and ended one way or the other: it has stopped, not succeeded."""
    timeout = held.timeout
    if held.overdue and timeout is not None:
        return timed_out(timeout.total_seconds())
    return Cancelled(CANCELLED_RUNNING) if held.asked_to_cancel else Released()


def was_cancelled() -> bool:
    """Whether the coroutine was cancelled, caught that and returned."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def timed_out(seconds: float) -> Failed:
    return Failed(f"timed out after {seconds:g} s", kind=TIMED_OUT)


def failed(error: BaseException, task: Task[..., Any] | None = None, *, is_ours: bool = True) -> Failed:
    text = described(error, is_ours=is_ours)
    return Failed(text if task is None else task.retold(text, error), kind=type(error).__name__)


def described(error: BaseException, *, is_ours: bool = True) -> str:
    """The error and where it came from, without the frames of the worker itself. Never raises."""
    frames = error.__traceback__
    if is_ours and frames is not None:
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames, limit=-MOST_FRAMES)).strip()
    except BaseException:  # the error comes from anywhere, and so does the code that puts it in words
        return type(error).__name__


class _NoHandler(Exception):
    pass


class _BadPayload(Exception):
    pass


class _NoKey(Exception):
    pass
