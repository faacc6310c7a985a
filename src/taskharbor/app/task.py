"""A function that can be enqueued. It stays a function: calling it runs it here and now."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack

from taskharbor.app.batch_binding import ItemBinding
from taskharbor.app.batches import Batching
from taskharbor.app.binding import CONTEXT, Binding
from taskharbor.app.discreet import plain_text, reworded, unquoted
from taskharbor.app.errors import InvalidArguments
from taskharbor.app.limit_keys import check_limit_key
from taskharbor.app.many import EnqueuedMany, chunks, enqueue_chunks
from taskharbor.app.options import EnqueueOptions, Terms
from taskharbor.app.placeholders import MARK, holds_placeholder, resolved, written
from taskharbor.app.results import encode_result
from taskharbor.app.sealed import payload_of, result_of
from taskharbor.app.workflows import Signature
from taskharbor.core.contract import Duration
from taskharbor.core.envelope import MAGIC
from taskharbor.core.errors import InvalidInput, InvalidPayload
from taskharbor.core.limits import check_duration
from taskharbor.core.model import Enqueued, Job, NewJob
from taskharbor.core.retry import Backoff
from taskharbor.core.workflow import StepResult

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor

P = ParamSpec("P")
R = TypeVar("R")

Pool = Literal["thread", "process", "async"]
_POOLS = ("thread", "process", "async")


class Enqueueing(Generic[P]):
    """What a task and `task.using(…)` have in common. Arguments are checked before anything is stored."""

    _harbor: Harbor
    _terms: Terms

    def _payload(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        raise NotImplementedError

    def _type(self) -> str:
        raise NotImplementedError

    def new_job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The checked job, not enqueued yet: for `harbor.enqueue_many`, where jobs of many kinds go together."""
        return self._terms.new_job(self._type(), self._payload(args, kwargs), self._harbor.now)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Store a job that calls the function with these arguments. It is there when this returns; with
        `using(connection=…)`, it is there exactly if that transaction is committed."""
        job = self.new_job(*args, **kwargs)
        if self._harbor.encryption is not None:
            job = self._harbor.encryption.seal_job(job)
        return self._harbor.driver.enqueue((job,), connection=self._terms.connection)[0]

    def delay(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Another name for `enqueue`. To have a job run later: `using(delay=60).enqueue(…)`."""
        return self.enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """`enqueue` without holding up the event loop. The connection may be an asynchronous one."""
        await self._harbor._aopen()
        payload = self._payload(args, kwargs)
        job = self._terms.new_job(self._type(), payload, await self._harbor._aclock(self._terms))
        return (await self._harbor._asend([job], self._terms.connection))[0]

    def s(self, /, *args: Any, **kwargs: Any) -> Signature:
        """A call to be made later, as a step of a workflow: `chain(extract.s(day=1), load.s(rows=PREVIOUS))`. Arguments
        may be results of other steps, so they are checked when the workflow starts."""
        if self._terms.connection is not None:
            raise InvalidInput(
                f"{self._task().name}: a workflow is started on its own, not in the transaction of a connection: leave "
                "connection out, and start the workflow when you have committed"
            )
        return Signature(self._task(), self._terms, args, kwargs)

    def _task(self) -> Task[..., Any]:
        raise NotImplementedError

    def enqueue_many(self, items: Iterable[Mapping[str, Any]], /) -> EnqueuedMany:
        """One job for each item, which has the arguments by name. Any number of items, of which only some thousand
        are in memory at a time.

        Each chunk of some thousand jobs is a transaction of its own: when an item is refused or the store fails,
        the chunks before it are stored and the rest is not. For all or nothing, give `using(connection=…)`, and
        everything is part of that transaction.
        """
        jobs = self._harbor._sealed(self._jobs(items))
        return enqueue_chunks(self._harbor.driver, jobs, self._terms.connection)

    async def aenqueue_many(self, items: Iterable[Mapping[str, Any]], /) -> EnqueuedMany:
        """`enqueue_many` without holding up the event loop."""
        await self._harbor._aopen()
        answers = EnqueuedMany()
        for chunk in chunks(self._jobs(items, await self._harbor._aclock(self._terms))):
            answers.extend(await self._harbor._asend(chunk, self._terms.connection))
        return answers

    def _jobs(
        self, items: Iterable[Mapping[str, Any]], clock: Callable[[], datetime] | None = None
    ) -> Iterator[NewJob]:
        name, new_job, now = self._type(), self._terms.new_job, clock or self._harbor.now
        for number, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise InvalidArguments.about(
                    f"{name}: item {number} must map the names of arguments to values, got {type(item).__name__}"
                )
            try:
                payload = self._payload((), item)
            except InvalidPayload as error:
                said = f"{unquoted(error)} (item {number})"
                raise InvalidArguments(f"{error} (item {number})", unquoted=said) from None
            yield new_job(name, payload, now)


class Task(Enqueueing[P], Generic[P, R]):
    """What `@harbor.task` makes of a function."""

    __name__: str
    __qualname__: str

    def __init__(
        self,
        harbor: Harbor,
        function: Callable[P, R],
        terms: Terms,
        *,
        name: str | None,
        retry: Backoff | None,
        pool: Pool | None,
        batch: int | None = None,
        batch_wait: Duration | None = None,
        batch_by: str | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._harbor = harbor
        self.function = function
        self.name = _name_of(function) if name is None else name
        self.pool: Pool = _pool_of(self.name, function, pool)
        self.is_async = self.pool == "async"
        if retry is not None and not isinstance(retry, Backoff):
            raise InvalidInput(f"{self.name}: retry takes a Backoff, for example Backoff(base=1), got {retry!r}")
        self.retry = retry
        self.batch = Batching.of(self.name, batch, batch_wait, batch_by)
        """How many of its jobs the function is given at once; None if each has a call of its own."""
        timeout = terms.fields.get("timeout")
        self.timeout: timedelta | None = (check_duration(timeout, "timeout") or None) if timeout is not None else None
        fields = {**terms.fields, "timeout": self.timeout}
        self._terms = terms.as_defaults()._replace(fields=fields, complete=self._complete)
        # One that names what is not defined yet is prepared when it is first used.
        self._prepared: Binding | None = None
        with contextlib.suppress(NameError):
            self._prepared = self._bound()
            self._check_names(self._terms)
        self.wants_context = CONTEXT in inspect.signature(function).parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def queue(self) -> str:
        return str(self._terms.fields["queue"])

    @property
    def priority(self) -> int:
        return int(self._terms.fields.get("priority", 0))

    @property
    def max_attempts(self) -> int | None:
        """None is the default of the store's limits."""
        return self._terms.fields.get("max_attempts")

    @property
    def unique(self) -> tuple[str, ...]:
        """The fields that, with the tenant, make up the scope of an idempotency key."""
        return tuple(self._terms.fields.get("unique", ("tenant", "type")))

    @property
    def binding(self) -> Binding:
        if self._prepared is None:
            try:
                self._prepared = self._bound()
            except NameError as error:
                raise InvalidInput(
                    f"{self.name}: cannot read its annotations: {error}. Import what they name at the top of the "
                    "module, not for type checkers only"
                ) from None
        return self._prepared

    def _bound(self) -> Binding:
        return (Binding if self.batch is None else ItemBinding)(self.name, self.function)

    def using(self, /, **options: Unpack[EnqueueOptions]) -> Call[P]:
        """The same task with other options: `send.using(queue="slow", delay=60).enqueue(to="ada")`."""
        terms = self._terms.with_options(options)
        self._check_names(terms)
        return Call(self, terms)

    def _check_names(self, terms: Terms) -> None:
        """Refuse arguments that the task does not have, where a rule or a key of limits names them."""
        if terms.unique is not None:
            terms.unique.check_names(self.name, self.binding.known)
        if terms.limit_key is not None:
            check_limit_key(self.name, terms.limit_key, self.binding.known)

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """The arguments for the function, checked; InvalidPayload if it does not take what the payload has. Of a batch
        task, what its item has for arguments."""
        binding = self._prepared or self.binding
        if payload in (b"{}", b""):
            return binding.load({})
        return binding.load(self._harbor.codec.decode(payload))

    def opened(self, job: Job) -> Job:
        """The job as its handler may see it: with its payload in plain. EncryptionKeyMissing or DecryptionFailed if
        that cannot be had."""
        ring = self._harbor.encryption
        if ring is None and not job.payload.startswith(MAGIC):
            return job if MARK not in job.payload else self._with_results(job)
        job = job._replace(payload=payload_of(job, ring))
        return job if MARK not in job.payload else self._with_results(job)

    def _with_results(self, job: Job) -> Job:
        """The job of a step, with the results of the steps before it among its arguments."""
        harbor = self._harbor

        def decode(found: StepResult) -> Any:
            if found.result is None:
                return None
            data, ring = found.result, harbor.encryption
            if data.startswith(MAGIC) or (ring is not None and not ring.accept_plain):
                step = harbor.driver.get(found.job_id)
                if step.tenant_id != job.tenant_id:
                    raise InvalidPayload.about(f"{job.type}: takes a result of another tenant")
                data = result_of(step, ring) or b"null"
            return harbor.codec.decode(data)

        values = resolved(job, harbor.codec.decode(job.payload), harbor.driver, decode)
        return job._replace(payload=harbor.codec.encode(values))

    def result_for(self, job: Job, value: Any) -> bytes | None:
        """What the function returned for this job, as the store keeps it; None stays None."""
        result = self.encode_result(value)
        ring = self._harbor.encryption
        return result if ring is None or result is None else ring.seal_result(job, result)

    def encode_result(self, value: Any) -> bytes | None:
        """What the function returned, as bytes to store; None stays None."""
        return None if value is None else encode_result(self.name, value, self._harbor.codec)

    def told(self, error: BaseException) -> str:
        """What the store and the log are told of an error about a payload or a result: where those are encrypted,
        nothing that quotes them."""
        return plain_text(error) if self._harbor.encryption is None else unquoted(error)

    def retold(self, text: str, error: BaseException) -> str:
        """The same for what a handler raised, put into words as `text`: there, what others quote is their business, and
        what TaskHarbor quotes is taken out."""
        return text if self._harbor.encryption is None else reworded(text, error)

    def _payload(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        binding = self._prepared or self.binding
        values = binding.dump(positional, named)
        codec = self._harbor.codec
        try:
            return codec.encode(values)
        except InvalidPayload as error:
            raise (binding.culprit(values, codec.encode) or error) from None

    def _complete(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return (self._prepared or self.binding).completed(arguments)

    def payload_with_placeholders(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        """The payload of a step whose arguments are not all known yet; those that are, are checked."""
        if self.batch is not None:
            raise InvalidInput(f"{self.name}: a batch task takes no results of other steps: put a plain task between")
        known, unknown = (self._prepared or self.binding).dump_partly(positional, named, holds_placeholder)
        return self._harbor.codec.encode({**known, **{name: written(value) for name, value in unknown.items()}})

    def _type(self) -> str:
        return self.name

    def _is_again(self, function: Callable[..., Any]) -> bool:
        """Whether `function` is this one, read a second time: by a reload, or once as a script and once as a module."""
        return _origin(self.function) == _origin(function) or _place(self.function) == _place(function)

    def _task(self) -> Task[..., Any]:
        return self

    def __reduce__(self) -> str:
        # By name, like any function: another process imports the module and finds the task there.
        return self.__qualname__

    def __repr__(self) -> str:
        return f"Task({self.name!r}, queue={self.queue!r})"


class Call(Enqueueing[P]):
    """A task with options of its own, made by `using`."""

    def __init__(self, task: Task[P, Any], terms: Terms) -> None:
        self.task = task
        self._harbor = task._harbor
        self._terms = terms

    def using(self, /, **options: Unpack[EnqueueOptions]) -> Call[P]:
        """These options and others; the later ones count."""
        terms = self._terms.with_options(options)
        self.task._check_names(terms)
        return Call(self.task, terms)

    def _payload(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        return self.task._payload(positional, named)

    def _type(self) -> str:
        return self.task.name

    def _task(self) -> Task[..., Any]:
        return self.task

    def __repr__(self) -> str:
        return f"Call({self.task.name!r})"


def _name_of(function: Callable[..., Any]) -> str:
    """The function's own name: it outlives a move to another module, and is the same for a script and a module."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise InvalidInput(f"{function!r} has no name: give the task one, harbor.task(name='email.send')")
    return str(name)


def _pool_of(task: str, function: Callable[..., Any], pool: Pool | None) -> Pool:
    if not callable(function):
        raise InvalidInput(f"a task is made of a function, got {type(function).__name__}")
    inner = getattr(function, "__call__", function)  # noqa: B004 - for an object, its method says whether it is async
    if any(
        kind(each) for kind in (inspect.isgeneratorfunction, inspect.isasyncgenfunction) for each in (function, inner)
    ):
        raise InvalidInput(f"{task}: is a generator, whose body would never run: return a list instead of yielding")
    if pool is not None and pool not in _POOLS:
        raise InvalidInput(f"{task}: pool must be one of {', '.join(_POOLS)}, got {pool!r}")
    where = getattr(function, "__qualname__", "")
    if pool == "process" and (not where or "<" in where):  # <locals>, <lambda>
        cure = f"move {where} there" if where and "<lambda>" not in where else "write one there with def"
        raise InvalidInput(
            f"{task}: pool='process' needs a function at the top of a module, where another process can import it: "
            f"{cure}, or leave pool out"
        )
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    if is_async and pool in ("thread", "process"):
        raise InvalidInput(f"{task}: async functions run on an event loop: leave pool out, or make it a plain function")
    if not is_async and pool == "async":
        raise InvalidInput(f"{task}: pool='async' is for async functions: leave pool out, or write async def")
    return "async" if is_async else pool or "thread"


def _origin(function: Callable[..., Any]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)


def _place(function: Callable[..., Any]) -> tuple[object, object]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return getattr(code, "co_filename", id(function)), getattr(function, "__qualname__", None)
