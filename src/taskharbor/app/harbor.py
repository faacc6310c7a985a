"""The application object: tasks are defined on it, jobs are enqueued, looked up and worked on through it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack, cast

from taskharbor.app import waiting
from taskharbor.app.defining import Defining, check_terms
from taskharbor.app.governing import Governing
from taskharbor.app.lookup import JobView, id_of
from taskharbor.app.many import EnqueuedMany, chunks, enqueue_chunks
from taskharbor.app.naming import job_of, task_name, terms_of
from taskharbor.app.options import EnqueueOptions, Terms, check_attempts
from taskharbor.app.runs import WorkflowRun
from taskharbor.app.store import Store
from taskharbor.app.task import Task
from taskharbor.app.workflows import Workflow
from taskharbor.core.codec import Codec, JsonCodec
from taskharbor.core.contract import Answers, Driver, Duration
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import Limits
from taskharbor.core.model import DEFAULT_QUEUE, DEFAULT_TENANT, Enqueued, JobFilter, NewJob, Status
from taskharbor.core.retry import Backoff

if TYPE_CHECKING:
    from taskharbor.app.encryption import Keyring
    from taskharbor.core.model import Schedule
    from taskharbor.worker.runtime import Worker

DEFAULT_URL: Final = "sqlite:///taskharbor.db"
JobLike = str | Enqueued | JobView
TaskLike = str | Task[Any, Any]


class Harbor(Defining, Governing):
    """One store, and the tasks of one application.

    `url` is that of TASKHARBOR_URL when it is left out, else `sqlite:///taskharbor.db`. The store is opened when it
    is first needed. `migrate` says whether its tables are made then: by default those of stores in files and in
    memory are, and those of servers are not (`taskharbor migrate` does it). The other arguments are what tasks have
    that say nothing else: `retry` the policy for failed attempts, `codec` how payloads become bytes.
    `encryption` is the Keyring for payloads and results; left out, the one of the file that the environment's
    TASKHARBOR_ENCRYPTION_KEYS names, if any; False for none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        tenant: str = DEFAULT_TENANT,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        retry: Backoff | None = None,
        codec: Codec | None = None,
        migrate: bool | None = None,
        limits: Limits | None = None,
        driver: Driver | None = None,
        encryption: Keyring | Literal[False] | None = None,
    ) -> None:
        if url is not None and not isinstance(url, str):
            raise InvalidInput(
                f"Harbor takes the URL of a store, got {type(url).__name__}: Harbor('sqlite:///jobs.db')"
            )
        self.url = url or os.environ.get("TASKHARBOR_URL") or DEFAULT_URL
        self.codec: Codec = codec or JsonCodec()
        if retry is not None and not isinstance(retry, Backoff):
            raise InvalidInput(f"retry takes a Backoff, for example Backoff(base=1), got {retry!r}")
        self.backoff = retry or Backoff()
        """The policy for failed attempts of tasks that have none of their own."""
        check_attempts(max_attempts)
        self._terms = Terms({"queue": queue, "tenant_id": tenant, "max_attempts": max_attempts, "timeout": timeout})
        self._terms = self._terms._replace(decode=self.codec.decode)
        check_terms("harbor", self._terms)
        Governing.__init__(self)
        self._tasks = {}
        self._schedules = {}
        self._scheduled = {}
        self.tasks: Mapping[str, Task[Any, Any]] = MappingProxyType(self._tasks)
        self.schedules: Mapping[str, Schedule] = MappingProxyType(self._schedules)
        self._store = Store(self.url, driver, limits, migrate)
        self.encryption = _ring_for(encryption)
        """The keys of its payloads and results; None if they are stored as they are."""

    # --- Enqueueing ------------------------------------------------------------------------------------------

    def enqueue(self, task: TaskLike, payload: Any = None, /, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Enqueue by name; there need be no handler here. `payload` has the arguments by name.

        If the task is defined here, they are checked and its options count. Bytes are stored as they are.
        """
        job, terms = job_of(self, task, payload, options)
        if self.encryption is not None:
            job = self.encryption.seal_job(job)
        return self.driver.enqueue((job,), connection=terms.connection)[0]

    async def aenqueue(self, task: TaskLike, payload: Any = None, /, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """`enqueue` without holding up the event loop. The connection may be an asynchronous one."""
        await self._aopen()
        clock = await self._aclock(terms_of(self, task, options))
        job, terms = job_of(self, task, payload, options, clock)
        return (await self._asend([job], terms.connection))[0]

    def enqueue_many(self, jobs: Iterable[Any], /, **options: Unpack[EnqueueOptions]) -> EnqueuedMany:
        """Enqueue jobs of any kind and any number, of which only some thousand are in memory at a time.

        Each is a pair of task and arguments, `("email.send", {"to": …})`, or a mapping with `type`, `payload` and
        options, or what `task.new_job(…)` gives. `options` count for those that say nothing themselves.

        Each chunk of some thousand jobs is a transaction of its own: when one is refused or the store fails, the
        chunks before it are stored and the rest is not. For all or nothing give `connection=…`, and everything is
        part of that transaction.
        """
        return enqueue_chunks(self.driver, self._sealed(self._each(jobs, options)), options.get("connection"))

    async def aenqueue_many(self, jobs: Iterable[Any], /, **options: Unpack[EnqueueOptions]) -> EnqueuedMany:
        """`enqueue_many` without holding up the event loop."""
        await self._aopen()
        answers = EnqueuedMany()
        for chunk in chunks(self._each(jobs, options, await self._aclock())):
            answers.extend(await self._asend(chunk, options.get("connection")))
        return answers

    def _each(
        self, jobs: Iterable[Any], options: EnqueueOptions, clock: Callable[[], datetime] | None = None
    ) -> Iterator[NewJob]:
        for number, item in enumerate(jobs):
            match item:
                case NewJob():
                    yield item
                case (str() | Task() as task, payload):
                    yield job_of(self, task, payload, options, clock)[0]
                case {"type": task, **rest}:
                    payload = rest.pop("payload", None)
                    if "connection" in rest:
                        raise InvalidInput(f"item {number} has a connection of its own: give one to enqueue_many")
                    yield job_of(self, task, payload, cast("EnqueueOptions", {**options, **rest}), clock)[0]
                case _:
                    raise InvalidInput(
                        f"item {number} is no job: give ('email.send', {{'to': …}}), or a mapping with type and "
                        f"payload, or task.new_job(…), got {type(item).__name__}"
                    )

    def _sealed(self, jobs: Iterable[NewJob]) -> Iterable[NewJob]:
        """The jobs as the store gets them."""
        return jobs if self.encryption is None else map(self.encryption.seal_job, jobs)

    # --- Looking after jobs ----------------------------------------------------------------------------------

    def job(self, id: JobLike) -> JobView:
        """The job as it is now: state, attempts with their errors, progress, result. JobNotFound if there is none."""
        return JobView(self.driver.get(id_of(id)), self.driver, self.codec, self.encryption)

    def wait(self, id: JobLike, timeout: float | None = None) -> Any:
        """The result of the job, when it is done. JobFailed if it ends in any other way, TimeoutError if it has not
        ended after `timeout` seconds."""
        return waiting.wait(self.driver, self.codec, id_of(id), timeout, self.encryption)

    async def await_result(self, id: JobLike, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as `wait` has it
        """`wait` without holding up the event loop."""
        return await waiting.await_result(await self._aopen(), self.codec, id_of(id), timeout, self.encryption)

    def cancel(self, id: JobLike) -> Status:
        """A job that waits is cancelled; the handler of one that runs is told through its context. Returns where the
        job stands now. One that has ended stays as it is."""
        return self.driver.cancel(id_of(id))

    def retry(self, id: JobLike, *, reset_attempts: bool = False, delay: Duration | None = None) -> None:
        """Send a job of the DLQ back to run once more; with `reset_attempts`, as often as a new one."""
        chosen = JobFilter(ids=[id_of(id)])
        run_at = self._terms.with_options({"delay": delay}).new_job("retry", b"", self.now).run_at
        if not self.driver.redrive(chosen, run_at=run_at, reset_attempts=reset_attempts):
            view = self.job(id)
            raise InvalidInput(
                f"job {view.id} is {view.state}, and only jobs in the DLQ can be retried"
                + (": enqueue it again" if view.finished else ": it will run by itself")
            )

    def redrive(
        self,
        *,
        queue: str | None = None,
        type: TaskLike | None = None,
        tenant: str | None = None,
        error: str | None = None,
        code: str | None = None,
        limit: int | None = None,
        rate: float | None = None,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        clone: bool = False,
    ) -> Sequence[str]:
        """Send the jobs of the DLQ that match back to run, oldest first, and return their ids.

        `error` is text that their error contains; `rate` (jobs a second) spreads them over time.
        """
        kind = None if type is None else task_name(type)
        chosen = JobFilter(queue=queue, type=kind, tenant_id=tenant, error=error, code=code)
        if clone and self.encryption is not None:
            from taskharbor.app.cloning import clone_sealed

            return clone_sealed(self.driver, self.encryption, chosen, limit=limit, rate=rate, run_at=run_at)
        return self.driver.redrive(
            chosen, limit=limit, rate=rate, run_at=run_at, reset_attempts=reset_attempts, clone=clone
        )

    # --- The store and the workers ---------------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        """The store, opened when it is first asked for."""
        return self._store.driver()

    def now(self) -> datetime:
        """The store's clock."""
        return self._store.driver().now()

    def start(self, flow: Workflow) -> WorkflowRun:
        """Store a workflow with all its steps; those that wait for nothing are ready. It starts as a whole or not at
        all. A step that is unknown or badly called is refused before anything is stored."""
        if not isinstance(flow, Workflow):
            raise InvalidInput(f"start takes a Workflow, or what chain, group or chord give, got {type(flow).__name__}")
        return self.workflow(self.driver.start_workflow(flow.plan(self)))

    def workflow(self, id: str) -> WorkflowRun:
        """A workflow that was started; WorkflowNotFound if there is none of this id."""
        return WorkflowRun(self, self.driver.get_workflow(id))

    def worker(self, queues: Any = None, **options: Any) -> Worker:
        """A worker for the tasks of this harbor: `.run()` until it is told to stop, `.drain()` until nothing is left.

        `queues` is a name, a list, or a mapping of names to how many jobs of each may run at once.
        """
        from taskharbor.worker.runtime import Worker

        return Worker(self, queues, **options)

    def close(self) -> None:
        """Give back the store's resources. Closing twice is fine."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        from taskharbor.drivers.opening import redacted

        return f"Harbor({redacted(self.url)!r})"

    async def _aopen(self) -> Driver:
        import asyncio

        return self.driver if self._store.is_open else await asyncio.to_thread(self._store.driver)

    async def _aclock(self, terms: Terms | None = None) -> Callable[[], datetime]:
        """The store's time for jobs with these terms, or with any, asked for where it holds up no event loop."""
        import asyncio

        if terms is not None and not terms.delay and terms.expires_in is None:
            return self.now  # which nobody will ask
        moment = await asyncio.to_thread(self.now)
        return lambda: moment

    async def _asend(self, jobs: Sequence[NewJob], connection: Any) -> Answers:
        import asyncio

        jobs = list(self._sealed(jobs))
        if connection is None:
            return await asyncio.to_thread(self.driver.enqueue, jobs)
        join: Callable[..., Any] | None = getattr(self.driver, "aenqueue", None)
        if join is None:
            raise InvalidInput(f"{type(self.driver).__name__} takes no asynchronous connections")
        answers: Answers = await join(jobs, (await self._aclock())(), connection=connection)
        return answers


def _ring_for(given: Keyring | Literal[False] | None) -> Keyring | None:
    if given is None and not os.environ.get("TASKHARBOR_ENCRYPTION_KEYS"):
        return None  # as nearly always, without the import
    from taskharbor.app.encryption import ring_for

    return ring_for(given)
