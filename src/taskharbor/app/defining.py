"""How functions become tasks, and tasks become schedules: the decorators of a harbor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from taskharbor.app.options import EnqueueOptions, LimitKey, Terms, unknown_option
from taskharbor.app.periodic import schedule_of
from taskharbor.app.signatures import (
    BatchTaskMaker,
    Context0,
    Context1,
    Context2,
    Context3,
    Context4,
    Context5,
    ContextFirst,
    TaskMaker,
)
from taskharbor.app.task import Pool, Task
from taskharbor.app.unique import Unique
from taskharbor.core.clock import utc_now
from taskharbor.core.contract import Duration
from taskharbor.core.errors import InvalidInput
from taskharbor.core.intake import admit
from taskharbor.core.limits import Limits
from taskharbor.core.model import NewJob
from taskharbor.core.retry import Backoff

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor
    from taskharbor.core.model import Schedule

P = ParamSpec("P")
R = TypeVar("R")

_OF_ONE_JOB: Final = frozenset(("key", "id", "connection", "delay", "run_at", "expires_at"))
_OF_TASKS: Final = EnqueueOptions.__optional_keys__ - _OF_ONE_JOB
_OWN: Final = frozenset(("name", "retry", "pool", "batch", "batch_wait", "batch_by"))


class Defining:
    """The part of a harbor that applications define their tasks with."""

    _terms: Terms
    _tasks: dict[str, Task[Any, Any]]
    _schedules: dict[str, Schedule]
    _scheduled: dict[str, Task[Any, Any]]

    @overload
    def task(self, function: ContextFirst[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Context0[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Context1[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Context2[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Context3[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Context4[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Context5[R], /) -> Task[..., R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        batch: int,
        batch_wait: Duration | None = None,
        batch_by: Literal["tenant"] | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        timeout: Duration | None = None,
        retry: Backoff | None = None,
        unique: Unique | Sequence[str] = ("tenant", "type"),
        debounce: Duration | None = None,
        throttle: Duration | None = None,
        while_in: Sequence[str] | None = None,
        key_ttl: Duration | None = None,
        on_duplicate: str | None = None,
        tenant: str | None = None,
        meta: Mapping[str, str] | None = None,
        limit_key: LimitKey | None = None,
        pool: Pool | None = None,
    ) -> BatchTaskMaker: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        max_retries: int | None = None,
        timeout: Duration | None = None,
        retry: Backoff | None = None,
        unique: Unique | Sequence[str] = ("tenant", "type"),
        debounce: Duration | None = None,
        throttle: Duration | None = None,
        while_in: Sequence[str] | None = None,
        key_ttl: Duration | None = None,
        on_duplicate: str | None = None,
        tenant: str | None = None,
        meta: Mapping[str, str] | None = None,
        limit_key: LimitKey | None = None,
        pool: Pool | None = None,
    ) -> TaskMaker: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Backoff | None = None,
        pool: Pool | None = None,
        batch: int | None = None,
        batch_wait: Duration | None = None,
        batch_by: str | None = None,
        **options: Any,
    ) -> Task[..., Any] | TaskMaker | BatchTaskMaker:
        """Make a task of a function, synchronous or not: `@harbor.task`, or `@harbor.task(queue="mail", …)`.

        `name` is what jobs know it by, the function's own name unless given: keep it when the function is renamed,
        or the jobs that wait lose their handler. `pool="process"` runs it in another process, for work that keeps a
        core busy. `timeout` is in seconds or a timedelta. `unique` says which of its jobs count as the same, as a
        `Unique`, or names the fields that, with the tenant, make up the scope of a `key`; `debounce` and `throttle` let
        the last or the first of several such jobs win. `limit_key` is what limits per key count its jobs by: text, in
        which `{name}` stands for an argument, or a function of the arguments.

        With `batch` the function is given up to so many jobs at once, `def index(batch: Batch[Document])`. A batch is
        made of what there is; `batch_wait` lets it fill for so many seconds, `batch_by="tenant"` keeps tenants apart.
        """
        own = {
            "retry": retry,
            "pool": pool,
            "batch": batch,
            "batch_wait": batch_wait,
            "batch_by": batch_by,
        }
        if function is None:
            return cast("TaskMaker", lambda decorated: self._define(decorated, name, own, options))
        if isinstance(function, str):
            raise InvalidInput(f"harbor.task takes options by name: harbor.task(name={function!r})")
        return self._define(function, name, own, options)

    def _define(
        self,
        function: Callable[P, R],
        name: str | None,
        own: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Task[P, R]:
        """`own` is what belongs to the task, `options` what its jobs have in common."""
        if isinstance(function, Task):
            bare = name is None and not options and all(value is None for value in own.values())
            if bare and function._harbor is self:
                return function
            raise InvalidInput(
                f"{function.name} is a task already: give the options once, and put @harbor.periodic above @harbor.task"
            )
        given = {key: value for key, value in options.items() if value is not None}
        _check_names(given)
        try:
            terms = self._terms.with_options(given)
        except InvalidInput as error:
            raise type(error)(f"{name or getattr(function, '__name__', 'task')}: {error}") from None
        task = Task(cast("Harbor", self), function, terms, name=name, **own)
        check_terms(task.name, task._terms)
        known = self._tasks.get(task.name)
        if known is not None and not known._is_again(function):
            raise InvalidInput(
                f"there is a task {task.name!r} already, {_whose(known.function)}: give {_whose(function)} "
                f"another name, @harbor.task(name='…')"
            )
        self._tasks[task.name] = task
        return task

    def periodic(
        self,
        spec: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        overlap: str = "skip",
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskMaker:
        """Have workers enqueue a task again and again: `@harbor.periodic("*/5 * * * *", timezone="Europe/Paris")`.

        On a function, which becomes a task, or on a task. `spec` has five fields of cron, or six with seconds first,
        or is `@every 10m`. Each tick makes one job however many workers there are; with `overlap="skip"` none while
        the last one has not ended. A second schedule of one task needs a `name`.
        """

        def define(function: Callable[P, R]) -> Task[P, R]:
            task: Task[P, R] = function if isinstance(function, Task) else self.task(function)
            schedule = schedule_of(
                task,
                spec,
                timezone=timezone,
                name=name,
                overlap=overlap,
                arguments=arguments,
                options=options,
            )
            known = self._scheduled.get(schedule.name)
            # One that belongs to a task defined anew is that of the module before it was reloaded.
            if known is not None and self._tasks.get(known.name) is known:
                raise InvalidInput(f"there is a schedule {schedule.name!r} already: give this one another name=")
            self._schedules[schedule.name] = schedule
            self._scheduled[schedule.name] = task
            return task

        return cast("TaskMaker", define)


def _check_names(options: Mapping[str, Any]) -> None:
    """Refuse what a task cannot have, above all what belongs to one of its jobs."""
    for option in options:
        if option in _OF_ONE_JOB:
            raise InvalidInput(f"{option} belongs to one job, and not to a task: task.using({option}=…).enqueue(…)")
        if option not in _OF_TASKS:
            raise unknown_option(option, {*_OWN, *_OF_TASKS})


def check_terms(whose: str, terms: Terms) -> None:
    """Refuse options where they are written, not where they are first used."""
    try:
        admit([NewJob("check", b"", **{**terms.fields, "idempotency_key": "check"})], utc_now(), Limits())
    except InvalidInput as error:
        raise type(error)(f"{whose}: {error}") from None


def _whose(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
