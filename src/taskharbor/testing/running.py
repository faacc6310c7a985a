"""Jobs that run where they are enqueued, for tests of what happens around them."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from taskharbor.app.context import Context
from taskharbor.app.harbor import Harbor
from taskharbor.app.task import Task
from taskharbor.core.contract import Answers, Driver
from taskharbor.core.errors import InvalidPayload
from taskharbor.core.model import Extension, JobFilter, LeasedJob, NewJob, Progress, Reason
from taskharbor.core.outcome import Dead, Done, Ending, Failed, HandlerSignal, ending_of, settlement
from taskharbor.core.retry import Backoff
from taskharbor.testing.swapping import PrivateDriver

_AT_ONCE: Final = Backoff(base=0, jitter="none")
_LEASE: Final = timedelta(days=1)
_NO_END: Final = (SystemExit, asyncio.CancelledError)
"""What ends a program or a task elsewhere. A worker goes on: for it, the attempt has failed."""


@contextmanager
def inline(harbor: Harbor, *, raise_errors: bool = False) -> Iterator[Driver]:
    """Inside the block, enqueueing a job runs its handler at once, in this process, before enqueue returns.

    Job, attempts and result are kept in an empty store in memory, so that `harbor.job(id)` shows them. A handler
    that fails is run again without the pause of its policy until it succeeds or its attempts are used up; with
    `raise_errors` its first error is raised where the job was enqueued. Jobs that are due later, because they were
    enqueued or have asked for it (`Retry(delay=60)`, `Snooze(60)`), and jobs that have no handler here stay where
    they are; timeouts are not kept.
    """
    with InlineDriver(harbor, raise_errors=raise_errors) as driver, harbor._store.exchanged(driver):
        yield driver


class InlineDriver(PrivateDriver):
    def __init__(self, harbor: Harbor, *, raise_errors: bool) -> None:
        super().__init__(limits=harbor._store.limits)
        self._harbor = harbor
        self._raise_errors = raise_errors

    def enqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any = None) -> Answers:
        jobs = list(jobs)
        answers = super().enqueue(jobs, now, connection=connection)
        self._run_due(sorted({job.queue for job in jobs}))
        return answers

    async def aenqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any) -> Answers:
        return await asyncio.to_thread(self.enqueue, list(jobs), now, connection=connection)

    def redrive(self, filter: JobFilter | None = None, **options: Any) -> Sequence[str]:
        ids = super().redrive(filter, **options)
        self._run_due(sorted({self.get(id).queue for id in ids}))
        return ids

    def _run_due(self, queues: list[str]) -> None:
        types = list(self._harbor.tasks)
        while queues and (leased := self.reserve(queues, lease_for=_LEASE, types=types, owner="inline")):
            self._run(leased[0])

    def _run(self, leased: LeasedJob) -> None:
        started = self.now()
        error: BaseException | None = None
        ending: Ending
        try:
            ending = self._ending(leased)
        except HandlerSignal as signal:
            ending = ending_of(signal)
        except (Exception, *_NO_END) as failure:
            ending, error = Failed("".join(traceback.format_exception(failure))), failure
        except BaseException:  # an interrupt, or a test that ends here: not the handler's doing
            self.release(leased.job.id, leased.lease.token)
            raise
        job, lease = leased
        self.settle([settlement(ending, job, lease.token, started, self.now(), _AT_ONCE)])
        if error is not None and self._raise_errors:
            raise error

    def _ending(self, leased: LeasedJob) -> Ending:
        task: Task[Any, Any] = self._harbor.tasks[leased.job.type]
        try:
            arguments = task.arguments(leased.job.payload)
        except InvalidPayload as refused:
            return Dead(str(refused), Reason.BAD_PAYLOAD)
        if task.wants_context:
            arguments["context"] = Context(leased.job, leased.job.deliveries, _InlineControl(self, leased))
        value = task.function(**arguments)
        if task.pool == "async":
            value = _awaited(value)
        try:
            result = task.encode_result(value)
            if result is not None:
                self.limits.check_size(result, "the result")
        except Exception as refused:  # a codec of somebody else's may raise anything
            return Dead(f"the handler succeeded, but its result cannot be kept: {refused}")
        return Done(result)


class _InlineControl:
    def __init__(self, driver: InlineDriver, leased: LeasedJob) -> None:
        self._driver = driver
        self._id, self._token = leased.job.id, leased.lease.token

    @property
    def cancelled(self) -> bool:
        return self._driver.get(self._id).cancel_requested_at is not None

    def progress(self, progress: Progress) -> None:
        self._driver.extend([Extension(self._id, self._token, _LEASE, progress=progress)])

    def notice(self) -> None:
        """Nobody cancels an inline run, so nobody sees it."""

    def extend(self, seconds: float) -> None:
        self._driver.extend_lease(self._id, self._token, lease_for=max(_LEASE, timedelta(seconds=seconds)))


def _awaited(handler: Coroutine[Any, Any, Any]) -> Any:
    """The value of an async handler. Where a loop is running already, another one runs it in another thread."""
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
