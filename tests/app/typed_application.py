"""What a type checker knows of an application. It is checked, not run: `make check` has mypy read it, and a mistake
that mypy no longer finds is an unused ignore, which is an error too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from taskharbor import Batch, BatchItem, Context, Enqueued, Harbor, Task

harbor = Harbor("memory://")


@harbor.task
def send(to: str, count: int = 1) -> float:
    return count / len(to)


@harbor.task(queue="mail", timeout=10)
async def asend(to: str) -> bool:
    return bool(to)


@harbor.periodic("@daily")
@harbor.task
def tidy() -> None: ...


@harbor.periodic("@hourly", arguments={"kind": "hourly"})
def report(kind: str = "daily") -> None: ...


def calls() -> None:
    assert_type(send("ada", 2), float)
    assert_type(send.enqueue("ada", count=2), Enqueued)
    send.enqueue(to="ada")
    send.delay("ada")
    send.using(delay=60).using(key="k").enqueue("ada", 3)
    send.enqueue(5)  # type: ignore[arg-type]
    send.enqueue()  # type: ignore[call-arg]
    send.enqueue("ada", cuont=2)  # type: ignore[call-arg]
    send.delay("ada", "2")  # type: ignore[arg-type]
    send.new_job(5)  # type: ignore[arg-type]
    send.using(delay=60).enqueue(5)  # type: ignore[arg-type]
    send.using(dealy=60)  # type: ignore[call-arg]
    tidy.enqueue(1)  # type: ignore[call-arg]
    report.enqueue(kind=1)  # type: ignore[arg-type]


async def acalls() -> None:
    assert_type(await asend("ada"), bool)
    assert_type(await asend.aenqueue("ada"), Enqueued)
    await asend.aenqueue(5)  # type: ignore[arg-type]
    await asend.using(priority=9).aenqueue()  # type: ignore[call-arg]


# --- Handlers that take a context ------------------------------------------------------------------------------
# The worker gives it, so nobody passes it to `enqueue`.


@harbor.task
def last(to: str, count: int, context: Context) -> int:
    return count


@harbor.task(queue="mail")
def named(to: str, count: int = 1, *, context: Context) -> int:
    return count


@harbor.task
def first(context: Context, to: str) -> str:
    return to


@harbor.task
async def alone(context: Context) -> None: ...


@harbor.task
def optional(*, to: str, context: Context | None = None) -> None: ...


async def context_calls() -> None:
    assert_type(last, Task[..., int])
    assert_type(named, Task[..., int])
    last.enqueue("ada", 2)
    named.enqueue("ada")
    named.using(delay=5).enqueue("ada", count=2)
    first.enqueue("ada")
    await alone.aenqueue()
    optional.enqueue(to="ada")
    optional.enqueue(to=5)  # type: ignore[arg-type]


# --- Batch tasks ---------------------------------------------------------------------------------------------
# The arguments of a job are those of an item, which no type can say of `enqueue`.


@dataclass
class Document:
    number: int


@harbor.task(batch=100, batch_wait=0.5, batch_by="tenant", queue="search")
def index(batch: Batch[Document]) -> list[int]:
    for item in batch:
        assert_type(item, BatchItem[Document])
        assert_type(item.arguments, Document)
        item.done(item.arguments.nmuber)  # type: ignore[attr-defined]
    return [document.number for document in batch.arguments]


@harbor.task(batch=10)
async def aindex(batch: Batch[dict[str, int]]) -> None: ...


def batch_calls() -> None:
    assert_type(index, Task[..., list[int]])
    assert_type(index.enqueue(number=1), Enqueued)
    harbor.task(batch="ten")(index)  # type: ignore[call-overload]
    harbor.task(batch=5)(send)  # type: ignore[arg-type]
