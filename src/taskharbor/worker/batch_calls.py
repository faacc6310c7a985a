"""Calls the handler of a batch, in this process or in a child, and settles what it left unsettled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Protocol

from taskharbor.app.batches import Batch, BatchItem, ItemControl, settle_returned
from taskharbor.core.errors import InvalidPayload, JobNotInflight
from taskharbor.core.logged import running
from taskharbor.core.outcome import Dead, Ending
from taskharbor.worker.executor import Executor, Running, stopped, timed_out, was_cancelled
from taskharbor.worker.forked import end_if_forked

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.worker.batching import BatchRun


class Part(ItemControl, Running, Protocol):
    """What is known of one job of a batch while the handler runs."""

    lost: bool
    ending: Ending | None

    def settle(self, ending: Ending) -> bool: ...


class Whole(Protocol):
    """The same of all of them."""

    task: Task[..., Any]
    over: bool

    @property
    def members(self) -> Sequence[Part]: ...

    def log_fields(self) -> Mapping[str, Any]: ...


def run_batch(run: BatchRun, executor: Executor) -> None:
    """A handler that is a plain function, in the calling thread or in the process that belongs to it."""
    if run.task.pool == "process" and executor.processes is not None:
        executor.processes.run_batch(run)
    else:
        call_batch(run, executor)


def call_batch(run: Whole, executor: Executor) -> None:
    """A plain function, here and now."""
    batch = prepared(run, executor)
    if not batch:
        return
    pid = os.getpid()
    try:
        # In a context of its own, as for a job alone.
        variables = Variables()
        variables.run(running.set, run)
        value = variables.run(run.task.function, batch)
    except BaseException as error:
        end_if_forked(pid, run.task.name)
        settle_raised(run, error, executor)
    else:
        end_if_forked(pid, run.task.name)
        settle_rest(run, batch, value)


async def acall_batch(run: BatchRun, executor: Executor) -> None:
    """A coroutine function, in the running loop."""
    batch = prepared(run, executor)
    if not batch:
        return
    limit: asyncio.Timeout | None = None
    try:
        if run.timeout is None:
            value = await run.task.function(batch)
        else:
            limit = asyncio.timeout(run.timeout.total_seconds())
            async with limit:
                value = await run.task.function(batch)
    except BaseException as error:
        if not (isinstance(error, TimeoutError) and limit is not None and limit.expired()):
            settle_raised(run, error, executor)
            return
    else:
        if limit is None or not limit.expired():  # else it was cancelled, caught that and returned
            settle_rest(run, batch, value, was_cancelled=was_cancelled())
            return
    assert run.timeout is not None
    run.over = True
    run.end(timed_out(run.timeout.total_seconds()))


def prepared(run: Whole, executor: Executor) -> Batch[Any]:
    """The batch for the handler. Jobs whose payload it cannot take are settled here, without harm to the others."""
    items = []
    for member in run.members:
        try:
            _, job, arguments = executor.opened(member)
            items.append(BatchItem(job, arguments, member))
        except Exception as error:
            member.settle(executor.after(member, error))
    return Batch(items)


def settle_rest(run: Whole, batch: Batch[Any], value: Any, *, was_cancelled: bool = False) -> None:
    """The handler has returned. Jobs that were to stop, and were seen to, have stopped."""
    run.over = True
    for member in run.members:
        if member.cancelled and (member.noticed or was_cancelled) and _is_open(member):
            _settle(member, stopped(member))
    try:
        settle_returned(batch, value)
    except InvalidPayload as error:
        # As for one job: the work is done, and would be done again and again.
        ending = Dead(f"the handler succeeded, but its results cannot be kept: {run.task.told(error)}")
        for member in run.members:
            if _is_open(member):
                _settle(member, ending)


def settle_raised(run: Whole, error: BaseException, executor: Executor) -> None:
    """The handler has failed all that it left. What it raised is put into words once."""
    run.over = True
    ending: Ending | None = None
    for member in run.members:
        if not _is_open(member):
            continue
        if member.cancelled:
            _settle(member, executor.after(member, error))
        else:
            ending = ending or executor.after(member, error)
            _settle(member, ending)


def _settle(member: Part, ending: Ending) -> None:
    with suppress(JobNotInflight):  # a thread that outlives the handler was quicker
        member.settle(ending)


def _is_open(member: Part) -> bool:
    return member.ending is None and not member.lost
