"""Jobs that run where they are enqueued, for tests of what happens around them."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from taskharbor.app.context import Context
from taskharbor.app.harbor import Harbor
from taskharbor.app.task import Task
from taskharbor.core.contract import Answers, Driver
from taskharbor.core.errors import DecryptionFailed, InvalidPayload
from taskharbor.core.model import JobFilter, LeasedJob, NewJob, Reason, Status
from taskharbor.core.outcome import Dead, Ending, Failed, HandlerSignal, ending_of, settlement
from taskharbor.core.workflow import WORKFLOW, NewWorkflow, Workflow
from taskharbor.testing.inline_controls import AT_ONCE, LEASE, NO_END, InlineControl, awaited, done_with, run_inline
from taskharbor.testing.swapping import PrivateDriver, busy_queues


@contextmanager
def inline(harbor: Harbor, *, raise_errors: bool = False) -> Iterator[Driver]:
    """Inside the block, enqueueing a job runs its handler at once, in this process, before enqueue returns; a workflow
    runs to its end before `harbor.start` returns.

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
        self._waits = False

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

    def start_workflow(self, flow: NewWorkflow, *, now: datetime | None = None) -> str:
        id = super().start_workflow(flow, now=now)
        self._run_due(busy_queues(self))
        return id

    def redrive_workflow(self, id: str, *, now: datetime | None = None) -> Workflow:
        self._waits = True  # nothing runs before all of it is back
        try:
            super().redrive_workflow(id, now=now)
        finally:
            self._waits = False
        self._run_due(busy_queues(self))
        return self.get_workflow(id)

    def cancel(self, id: str, *, now: datetime | None = None) -> Status:
        status = super().cancel(id, now=now)
        if WORKFLOW in self.get(id).meta:  # others may have waited for it, or its workflow is to be undone
            self._run_due(busy_queues(self))
        return status

    def _run_due(self, queues: list[str]) -> None:
        types = list(self._harbor.tasks)
        while queues and not self._waits:
            lets_go = False
            while leased := self.reserve(queues, lease_for=LEASE, types=types, owner="inline"):
                lets_go = lets_go or WORKFLOW in leased[0].job.meta
                task = self._harbor.tasks[leased[0].job.type]
                if task.batch is None:
                    self._run(leased[0])
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
        error = run_inline(self, task, kept)
        if error is not None and self._raise_errors:
            raise error

    def _run(self, leased: LeasedJob) -> None:
        started = self.now()
        error: BaseException | None = None
        ending: Ending
        try:
            ending = self._ending(leased)
        except HandlerSignal as signal:
            ending = ending_of(signal)
        except (Exception, *NO_END) as failure:
            text = "".join(traceback.format_exception(failure))
            ending, error = Failed(self._harbor.tasks[leased.job.type].retold(text, failure)), failure
        except BaseException:  # an interrupt, or a test that ends here: not the handler's doing
            self.release(leased.job.id, leased.lease.token)
            raise
        job, lease = leased
        self.settle([settlement(ending, job, lease.token, started, self.now(), AT_ONCE)])
        if error is not None and self._raise_errors:
            raise error

    def _ending(self, leased: LeasedJob) -> Ending:
        task: Task[Any, Any] = self._harbor.tasks[leased.job.type]
        try:
            job = task.opened(leased.job)
            arguments = task.arguments(job.payload)
        except (InvalidPayload, DecryptionFailed) as refused:
            return Dead(f"{type(refused).__name__}: {task.told(refused)}", Reason.BAD_PAYLOAD)
        if task.wants_context:
            arguments["context"] = Context(job, job.deliveries, InlineControl(self, leased))
        value = task.function(**arguments)
        if task.pool == "async":
            value = awaited(value)
        return done_with(self, task, leased, value)
