"""What type checkers are to know of the functions that become tasks.

The arguments of `enqueue` are those of the function, as ParamSpec has it. All but one: a handler's `context` comes from
the worker. No type says "these parameters but that one", so a function that takes a context is told apart by its shape,
and its arguments are then checked when they are enqueued, and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

if TYPE_CHECKING:
    from taskharbor.app.batches import Batch
    from taskharbor.app.context import Context
    from taskharbor.app.task import Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

ContextFirst: TypeAlias = "Callable[Concatenate[Context, ...], R]"


class Context0(Protocol[R_co]):
    def __call__(self, *, context: Context) -> R_co: ...


class Context1(Protocol[R_co]):
    def __call__(self, a: Any, /, *, context: Context) -> R_co: ...


class Context2(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, /, *, context: Context) -> R_co: ...


class Context3(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, /, *, context: Context) -> R_co: ...


class Context4(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, /, *, context: Context) -> R_co: ...


class Context5(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, e: Any, /, *, context: Context) -> R_co: ...


class TaskMaker(Protocol):
    """What `harbor.task(…)` and `harbor.periodic(…)` decorate a function with."""

    @overload
    def __call__(self, function: ContextFirst[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Context0[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Context1[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Context2[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Context3[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Context4[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Context5[R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class BatchTaskMaker(Protocol):
    """What `harbor.task(batch=…)` decorates a function with. The arguments of a job are those that the items of its
    batch have, which no type can say of `enqueue`: they are checked there."""

    def __call__(self, function: Callable[[Batch[Any]], R], /) -> Task[..., R]: ...
