"""Jobs that run where they are enqueued, for tests of what happens around them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from taskharbor.app.context import Context
from taskharbor.app.harbor import Harbor
from taskharbor.app.task import Task
from taskharbor.core.contract import Answers, Driver
from taskharbor.core.errors import DecryptionFailed, InvalidPayload
from taskharbor.core.model import JobFilter, LeasedJob, NewJob, Status
from taskharbor.core.outcome import Failed, HandlerSignal, settlement
from taskharbor.core.retry import Backoff
from taskharbor.core.workflow import WORKFLOW, NewWorkflow, Workflow
from taskharbor.testing.inline_controls import (
    LEASE,
    NO_END,
    Call,
    Ended,
    InlineControl,
    awaited,
    bad_payload,
    done_with,
    raised_by,
    run_inline,
)
from taskharbor.testing.swapping import AT_ONCE, PrivateDriver, busy_queues

NOT_AGAIN: Final = Backoff(base=LEASE.total_seconds(), factor=1, cap=LEASE.total_seconds(), jitter="none")
"""For a job whose error was raised: what is enqueued later must not run it."""


@contextmanager
def inline(harbor: Harbor, *, raise_errors: bool = False) -> Iterator[Driver]:
    """Inside the block, enqueueing a job runs its handler at once, in this process, before enqueue returns; a workflow
    runs to its end before `harbor.start` returns.

    Job, attempts and result are kept in an empty store in memory, so that `harbor.job(id)` shows them. A handler
    that fails is run again without the pause of its policy until it succeeds or its attempts are used up. With
    `raise_errors` its first error is raised by the call that enqueued it, when the other jobs of that call have run,
    and it is not tried again: it stays scheduled. So is what ends a job for good without an error of the handler's:
    `Unrecoverable`, a `Retry` too many, a result that cannot be kept. Jobs that are due later, because they were
    enqueued or have asked for it (`Retry(delay=60)`, `Snooze(60)`), and jobs that have no handler here stay where
    they are.

    Coroutines are held to their timeout. A plain function is not, whatever its pool: it runs on the thread that
    enqueues, and nothing could end it there. `in_memory` and `drain` run it as a worker does.
    """
    with InlineDriver(harbor, raise_errors=raise_errors) as driver, harbor._store.exchanged(driver):
        yield driver


class InlineDriver(PrivateDriver):
    def __init__(self, harbor: Harbor, *, raise_errors: bool) -> None:
        super().__init__(limits=harbor._store.limits)
        self._harbor = harbor
        self._raise_errors = raise_errors
        self._waits = False
        self._calls: list[Call] = []

    def enqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any = None) -> Answers:
        jobs = list(jobs)
        answers = super().enqueue(jobs, now, connection=connection)
        call = Call(answer.id for answer in answers if not answer.existed)
        self._run_due(sorted({job.queue for job in jobs}), call)
        return answers

    async def aenqueue(self, jobs: Iterable[NewJob], now: datetime | None = None, *, connection: Any) -> Answers:
        return await asyncio.to_thread(self.enqueue, list(jobs), now, connection=connection)

    def redrive(self, filter: JobFilter | None = None, **options: Any) -> Sequence[str]:
        ids = super().redrive(filter, **options)
        jobs = [self.get(id) for id in ids]
        workflows = {job.meta[WORKFLOW] for job in jobs if WORKFLOW in job.meta}
        self._run_due(sorted({job.queue for job in jobs}), Call(ids, workflows))
        return ids

    def start_workflow(self, flow: NewWorkflow, *, now: datetime | None = None) -> str:
        id = super().start_workflow(flow, now=now)
        self._run_due(busy_queues(self), Call(workflows=[id]))
        return id

    def redrive_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        self._waits = True  # nothing runs before all of it is back
        try:
            super().redrive_workflow(id, now=now)
        finally:
            self._waits = False
        self._run_due(busy_queues(self), Call(workflows=[id]))
        return self.get_workflow(id)

    def cancel(self, id: str, *, now: datetime | None = None) -> Status:
        status = super().cancel(id, now=now)
        workflow = self.get(id).meta.get(WORKFLOW)
        if workflow is not None:  # others may have waited for it, or it is to be undone
            self._run_due(busy_queues(self), Call(workflows=[workflow]))
        return status

    def end(self, leased: LeasedJob, ended: Ended, started: datetime) -> None:
        """Settle a job, and keep its error for the call that has to raise it, if that has not returned."""
        job, lease = leased
        ending, error = ended
        policy = AT_ONCE
        # A handler that asks for another try and has one left has not failed yet.
        is_last = not isinstance(ending, Failed) or job.attempts + 1 >= job.max_attempts
        if self._raise_errors and error is not None and (is_last or not isinstance(error, HandlerSignal)):
            call = next((each for each in self._calls if each.owns(job)), None)
            if call is not None:
                call.error = error if call.error is None else call.error
                policy = NOT_AGAIN
        self.settle([settlement(ending, job, lease.token, started, self.now(), policy)])

    def _run_due(self, queues: list[str], call: Call) -> None:
        if self._waits:
            return
        self._calls.append(call)
        try:
            self._run_all(queues)
        finally:
            self._calls.remove(call)
        if call.error is not None:
            raise call.error

    def _run_all(self, queues: list[str]) -> None:
        types = list(self._harbor.tasks)
        while queues:
            lets_go = False
            while leased := self.reserve(queues, lease_for=LEASE, types=types, owner="inline"):
                lets_go = lets_go or WORKFLOW in leased[0].job.meta
                task = self._harbor.tasks[leased[0].job.type]
                if task.batch is None:
                    self._run(task, leased[0])
                else:
                    self._run_batch(task, leased[0])
            queues = busy_queues(self) if lets_go else []  # what comes next may be in another queue

    def _run_batch(self, task: Task[Any, Any], first: LeasedJob) -> None:
        """The first job together with those that are there beside it, as a worker would have it."""
        assert task.batch is not None
        queue, tenant, beside = first.job.queue, first.job.tenant_id, task.batch.size - 1
        others = self.reserve(queue, lease_for=LEASE, types=[task.name], limit=beside, owner="inline") if beside else []
        kept = [first]
        for each in others:
            if task.batch.by_tenant and each.job.tenant_id != tenant:
                self.release(each.job.id, each.lease.token)
            else:
                kept.append(each)
        run_inline(self, task, kept)

    def _run(self, task: Task[Any, Any], leased: LeasedJob) -> None:
        started = self.now()
        try:
            ended = self._ended(task, leased)
        except (Exception, *NO_END) as failure:
            ended = raised_by(task, failure)
        except BaseException:  # an interrupt, or a test that ends here: not the handler's doing
            self.release(leased.job.id, leased.lease.token)
            raise
        self.end(leased, ended, started)

    def _ended(self, task: Task[Any, Any], leased: LeasedJob) -> Ended:
        try:
            job = task.opened(leased.job)
            arguments = task.arguments(job.payload)
        except (InvalidPayload, DecryptionFailed) as refused:
            return bad_payload(task, refused)
        if task.wants_context:
            arguments["context"] = Context(job, job.deliveries, InlineControl(self, leased))
        value = task.function(**arguments)
        if task.pool == "async":
            value = awaited(value, leased.job.timeout)
        return done_with(self, task, leased, value)
