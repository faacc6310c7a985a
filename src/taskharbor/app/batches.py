"""What the handler of a batch task is given: many jobs of its type at once, which it settles together or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar, overload

from taskharbor.app.context import Context, Control
from taskharbor.core.errors import InvalidInput, InvalidPayload, JobNotInflight
from taskharbor.core.limits import MAX_BATCH, check_duration
from taskharbor.core.model import Job
from taskharbor.core.outcome import Cancel, Retry, Snooze, Unrecoverable

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

OPEN: Final = "open"
LOST: Final = "lost"


class Batching(NamedTuple):
    """What a task says about its batches."""

    size: int
    wait_s: float = 0.0
    by_tenant: bool = False

    @staticmethod
    def of(task: str, batch: Any, wait: Any, by: Any) -> Batching | None:
        """What `@harbor.task(batch=…, batch_wait=…, batch_by=…)` means; None for a task of the plain kind."""
        if batch is None:
            for name, value in (("batch_wait", wait), ("batch_by", by)):
                if value is not None:
                    raise InvalidInput(f"{task}: {name} is about batches: give batch=… as well, or leave it out")
            return None
        if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MAX_BATCH:
            raise InvalidInput(
                f"{task}: batch must be a whole number from 1 to {MAX_BATCH:,}, the most jobs that it is given at "
                f"once, got {batch!r}"
            )
        if by not in (None, "tenant"):
            raise InvalidInput(f"{task}: batch_by must be 'tenant', or left out to mix tenants, got {by!r}")
        try:
            wait_s = 0.0 if wait is None else check_duration(wait, "batch_wait").total_seconds()
        except InvalidInput as error:
            raise InvalidInput(f"{task}: {error}") from None
        return Batching(batch, wait_s, by == "tenant")


class ItemControl(Control, Protocol):
    """The part of an item that whoever runs the batch supplies."""

    @property
    def state(self) -> str: ...

    def done(self, result: Any, /) -> bool: ...

    def raised(self, error: BaseException, /) -> bool: ...


class BatchItem(Context, Generic[A_co]):
    """One job of a batch: its arguments, its context, and its own end.

    `done`, `fail`, `retry`, `snooze`, `cancel` and `unrecoverable` end the job while the
    handler goes on: the store is told within milliseconds, of all that end then in one go, and a crash after that does
    not run the job again. Each returns whether that counts: False if
    the lease was lost meanwhile, in which case the job is somebody else's. A job ends once; a second end is an error.

    As a context manager (`with item:`) it is done when the block ends, unless it was settled inside. What the block
    raises is the end of this job alone, and the handler goes on with the next one.
    """

    __slots__ = ("_item", "arguments")

    def __init__(self, job: Job, arguments: A_co, control: ItemControl) -> None:
        super().__init__(job, job.deliveries, control)
        self.arguments = arguments
        self._item = control

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def tenant(self) -> str:
        return self.job.tenant_id

    @property
    def meta(self) -> Mapping[str, str]:
        return self.job.meta

    @property
    def state(self) -> str:
        """`open`, then `done`, `failed`, `snoozed`, `cancelled`, `dead` or `released`; or `lost`."""
        return self._item.state

    @property
    def settled(self) -> bool:
        """Whether this job has ended, or is no longer ours to end."""
        return self._item.state != OPEN

    @property
    def lost(self) -> bool:
        """Whether the lease is gone: what is written for this job from now on may be written twice."""
        return self._item.state == LOST

    # --- How it ends -------------------------------------------------------------------------------------

    def done(self, result: Any = None) -> bool:
        """The job is done, with this result."""
        return self._item.done(result)

    def fail(self, error: BaseException | str) -> bool:
        """This attempt failed: the task's retry policy says what becomes of the job, as if it had run alone. Given a
        `Retry`, `Snooze`, `Cancel` or `Unrecoverable`, it does what raising that does."""
        return self._item.raised(error if isinstance(error, BaseException) else Retry(reason=error))

    def retry(self, delay: timedelta | float | None = None, reason: object = "") -> bool:
        return self._item.raised(Retry(delay, reason))

    def snooze(self, seconds: timedelta | float, reason: object = "") -> bool:
        return self._item.raised(Snooze(seconds, reason))

    def cancel(self, reason: object = "") -> bool:
        return self._item.raised(Cancel(reason))

    def unrecoverable(self, reason: object = "") -> bool:
        return self._item.raised(Unrecoverable(reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        state = self._item.state
        if error is None:
            if state == OPEN:
                self.done()
            return False
        if not isinstance(error, Exception):  # the whole batch is to stop, or the program
            return False
        if state == OPEN:
            self._item.raised(error)
            return True
        return state == LOST  # an error after the end of the job is a mistake of the handler, and shows

    def __repr__(self) -> str:
        return f"BatchItem({self.job.type} {self.job.id}, attempt {self.attempt}, {self.state})"


class Batch(Sequence[BatchItem[A]]):
    """The jobs that one call of the handler is for, most urgent first.

    When the handler returns, those it has not settled are done. It may return their results: a list with one for each
    job of the batch, in order, or a mapping by id. An exception in place of a result is that job's failure, so that
    `await asyncio.gather(…, return_exceptions=True)` can be returned as it is. When the handler raises, that is the
    end of every job it has not settled, each judged by the retry policy as if it alone had failed.
    """

    def __init__(self, items: Sequence[BatchItem[A]]) -> None:
        self._items = tuple(items)

    @property
    def arguments(self) -> list[A]:
        """The arguments of every job, in order."""
        return [item.arguments for item in self._items]

    @property
    def unsettled(self) -> list[BatchItem[A]]:
        return [item for item in self._items if not item.settled]

    @property
    def cancelled(self) -> bool:
        """Whether the whole run is to stop: every job that is left was cancelled, lost or timed out, or the worker
        ends. As for `Context.cancelled`, a handler that has seen this and ends has stopped, and not succeeded."""
        left = self.unsettled
        if left and not all(item._control.cancelled for item in left):
            return False
        for item in left:
            item._control.notice()
        return bool(left) or any(item.lost for item in self._items)

    def extend(self, seconds: float) -> None:
        """Keep every job that is left for at least that long from now."""
        for item in self.unsettled:
            item.extend(seconds)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> BatchItem[A]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BatchItem[A]]: ...
    def __getitem__(self, index: int | slice) -> BatchItem[A] | Sequence[BatchItem[A]]:
        return self._items[index]

    def __iter__(self) -> Iterator[BatchItem[A]]:
        return iter(self._items)

    def __repr__(self) -> str:
        kind = self._items[0].job.type if self._items else "nothing"
        return f"Batch({len(self)} of {kind}, {len(self.unsettled)} unsettled)"


def settle_returned(batch: Batch[Any], value: Any) -> None:
    """End the jobs that a handler left unsettled, by what it returned. InvalidPayload if that fits no batch, and then
    nothing is settled."""
    results = _results(batch, value)
    for item, result in zip(batch, results, strict=True):
        if item.settled:
            continue
        with suppress(JobNotInflight):  # a thread that outlives the handler was quicker
            if isinstance(result, BaseException):
                item._item.raised(result)
            else:
                item._item.done(result)


def _results(batch: Batch[Any], value: Any) -> Sequence[Any]:
    if value is None:
        return [None] * len(batch)
    if isinstance(value, Mapping):
        ids = {item.id for item in batch}
        strange = next((key for key in value if key not in ids), None)
        if strange is not None:
            raise InvalidPayload(
                f"it returned a mapping by id, in which {strange!r} is no job of the batch",
                unquoted="it returned a mapping by id, in which a key is no job of the batch",
            )
        return [value.get(item.id) for item in batch]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if len(value) != len(batch):
            raise InvalidPayload.about(f"it returned {len(value)} results for {len(batch)} jobs")
        return value
    raise InvalidPayload.about(
        f"it returned {type(value).__name__}: return a list with a result for each job, a mapping by id, or nothing"
    )
