"""What stands in for a worker while a handler runs where its job was enqueued."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from taskharbor.app.batches import OPEN, Batch, BatchItem, settle_returned
from taskharbor.core.errors import DecryptionFailed, InvalidPayload, JobNotInflight
from taskharbor.core.model import Extension, Job, LeasedJob, Progress, Reason
from taskharbor.core.outcome import Dead, Done, Ending, Failed, HandlerSignal, ending_of
from taskharbor.core.workflow import WORKFLOW

if TYPE_CHECKING:
    from taskharbor.app.task import Task
    from taskharbor.testing.running import InlineDriver

LEASE: Final = timedelta(days=1)
NO_END: Final = (SystemExit, asyncio.CancelledError)
"""What ends a program or a task elsewhere. A worker goes on: for it, the attempt has failed."""


class Ended(NamedTuple):
    """How an execution ended, and what a caller is to be told of it who wants to hear of errors."""

    ending: Ending
    error: BaseException | None = None


class Call:
    """A call of the application that sets jobs going: these, and the steps of these workflows. It returns when they
    have run, and whatever else was due then."""

    def __init__(self, ids: Iterable[str] = (), workflows: Iterable[str] = ()) -> None:
        self._ids = frozenset(ids)
        self._workflows = frozenset(workflows)
        self.error: BaseException | None = None
        """The first of its own jobs, where it is to be raised."""

    def owns(self, job: Job) -> bool:
        return job.id in self._ids or job.meta.get(WORKFLOW) in self._workflows


class InlineControl:
    def __init__(self, driver: InlineDriver, leased: LeasedJob) -> None:
        self._driver = driver
        self._id, self._token = leased.job.id, leased.lease.token

    @property
    def cancelled(self) -> bool:
        return self._driver.get(self._id).cancel_requested_at is not None

    def progress(self, progress: Progress) -> None:
        self._driver.extend([Extension(self._id, self._token, LEASE, progress=progress)])

    def notice(self) -> None:
        """Nobody cancels an inline run, so nobody sees it."""

    def extend(self, seconds: float) -> None:
        self._driver.extend_lease(self._id, self._token, lease_for=max(LEASE, timedelta(seconds=seconds)))


class InlineItem(InlineControl):
    """One job of a batch that runs inline. It is settled in the store at once."""

    def __init__(self, driver: InlineDriver, task: Task[Any, Any], leased: LeasedJob, started: datetime) -> None:
        super().__init__(driver, leased)
        self._task = task
        self._leased = leased
        self._started = started
        self.ending: Ending | None = None

    @property
    def state(self) -> str:
        return OPEN if self.ending is None else type(self.ending).__name__.lower()

    def done(self, result: Any) -> bool:
        return self.settle(done_with(self._driver, self._task, self._leased, result))

    def raised(self, error: BaseException) -> bool:
        return self.settle(raised_by(self._task, error))

    def settle(self, ended: Ended) -> bool:
        if self.ending is not None:
            raise JobNotInflight(f"job {self._id} of the batch was settled before, as {self.state}")
        self.ending = ended.ending
        self._driver.end(self._leased, ended, self._started)
        return True


def run_inline(driver: InlineDriver, task: Task[Any, Any], jobs: Sequence[LeasedJob]) -> None:
    """Run the handler of a batch for these jobs and settle each."""
    started = driver.now()
    parts = [InlineItem(driver, task, leased, started) for leased in jobs]
    items = []
    for part, leased in zip(parts, jobs, strict=True):
        try:
            job = task.opened(leased.job)
            items.append(BatchItem(job, task.arguments(job.payload), part))
        except (InvalidPayload, DecryptionFailed) as refused:
            part.settle(bad_payload(task, refused))
        except Exception as error:
            part.raised(error)
    if not items:
        return
    batch = Batch(items)
    try:
        value = task.function(batch)
        # Together they have no more time than any one of them, as in a worker.
        timeout = min((leased.job.timeout for leased in jobs if leased.job.timeout is not None), default=None)
        value = awaited(value, timeout) if task.pool == "async" else value
    except (Exception, *NO_END) as error:
        _end(parts, error)
    except BaseException:  # an interrupt, or a test that ends here: not the handler's doing
        for part, leased in zip(parts, jobs, strict=True):
            if part.ending is None:
                driver.release(leased.job.id, leased.lease.token)
        raise
    else:
        try:
            settle_returned(batch, value)
        except InvalidPayload as refused:
            for part in parts:
                if part.ending is None:
                    reason = f"the handler succeeded, but its results cannot be kept: {task.told(refused)}"
                    part.settle(Ended(Dead(reason), refused))


def _end(parts: Sequence[InlineItem], error: BaseException) -> None:
    for part in parts:
        if part.ending is None:
            part.raised(error)


def done_with(driver: InlineDriver, task: Task[Any, Any], leased: LeasedJob, value: Any) -> Ended:
    """The end of a job whose handler returned this."""
    try:
        result = task.result_for(leased.job, value)
        if result is not None:
            driver.limits.check_size(result, "the result")
    except Exception as refused:  # a codec of somebody else's may raise anything
        return Ended(Dead(f"the handler succeeded, but its result cannot be kept: {task.told(refused)}"), refused)
    return Ended(Done(result))


def raised_by(task: Task[Any, Any], error: BaseException) -> Ended:
    """The end of a job whose handler raised this."""
    if isinstance(error, TimedOut):
        return Ended(Failed(str(error)), error)
    if not isinstance(error, HandlerSignal):
        return Ended(Failed(task.retold("".join(traceback.format_exception(error)), error)), error)
    ending = ending_of(error)
    return Ended(ending, error if isinstance(ending, Dead | Failed) else None)


def bad_payload(task: Task[Any, Any], refused: Exception) -> Ended:
    return Ended(Dead(f"{type(refused).__name__}: {task.told(refused)}", Reason.BAD_PAYLOAD), refused)


class TimedOut(TimeoutError):
    """The coroutine of a handler had no more time."""


def awaited(handler: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:
    """The value of an async handler, which is held to its timeout. Where a loop is running already, another one runs it
    in another thread."""
    handler = _in_time(handler, timeout)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(handler)
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(handler))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


async def _in_time(handler: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:  # noqa: ASYNC109 - the job's
    if timeout is None:
        return await handler
    late = TimedOut(f"timed out after {timeout.total_seconds():g} s")
    limit = asyncio.timeout(timeout.total_seconds())
    try:
        async with limit:
            value = await handler
    except TimeoutError:
        if limit.expired():
            raise late from None
        raise
    if limit.expired():
        raise late  # it was cancelled, caught that and returned
    return value
