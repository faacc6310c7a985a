"""Batch tasks as an application defines, enqueues and tests them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

import pydantic
import pytest

from taskharbor import Batch, Harbor, InvalidArguments, InvalidInput, Unrecoverable
from taskharbor.core.errors import JobNotInflight
from taskharbor.testing import assert_enqueued, drain, in_memory, inline


@dataclass
class Document:
    number: int
    language: str = "en"
    tags: list[str] = field(default_factory=list)


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("must be above zero")


class Typed(TypedDict):
    number: int
    language: NotRequired[str]


class Pair(NamedTuple):
    number: int
    language: str = "en"


class Checked(pydantic.BaseModel):
    number: int = pydantic.Field(gt=0)
    language: str = "en"


def of_document(batch: Batch[Document]) -> None: ...
def of_positive(batch: Batch[Positive]) -> None: ...
def of_typed(batch: Batch[Typed]) -> None: ...
def of_pair(batch: Batch[Pair]) -> None: ...
def of_checked(batch: Batch[Checked]) -> None: ...
def of_numbers(batch: Batch[dict[str, int]]) -> None: ...
def of_anything(batch: Batch) -> None: ...  # type: ignore[type-arg]
def of_unsaid(batch): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201


SHAPES: list[tuple[Callable[..., Any], Any]] = [
    (of_document, Document(1)),
    (of_positive, Positive(1)),
    (of_typed, {"number": 1}),
    (of_pair, Pair(1)),
    (of_checked, Checked(number=1)),
    (of_numbers, {"number": 1}),
    (of_anything, {"number": 1}),
    (of_unsaid, {"number": 1}),
]


@pytest.mark.parametrize(("function", "expected"), SHAPES)
def test_an_item_has_its_arguments_in_the_shape_that_the_annotation_names(
    harbor: Harbor, function: Callable[..., Any], expected: Any
) -> None:
    task = harbor.task(batch=10)(function)
    assert task.arguments(task.new_job(number=1).payload) == expected


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        (of_document, {"number": "1"}, "argument 'number' must be int"),
        (of_document, {}, "missing argument 'number'"),
        (of_document, {"number": 1, "langauge": "de"}, "did you mean 'language'"),
        (of_positive, {"number": 0}, "refuses its arguments: must be above zero"),
        (of_typed, {"number": 1, "other": 2}, "unexpected argument 'other'"),
        (of_pair, {"number": None}, "argument 'number' must be int"),
        (of_checked, {"number": 0}, "greater than 0"),
        (of_numbers, {"number": "x"}, "argument 'number' must be int"),
        (of_anything, {"number": object()}, "not JSON"),
    ],
)
def test_arguments_are_checked_one_job_at_a_time_when_they_are_enqueued(
    harbor: Harbor, function: Callable[..., Any], arguments: dict[str, Any], why: str
) -> None:
    task = harbor.task(batch=10)(function)
    with pytest.raises(InvalidArguments, match=why):
        task.enqueue(**arguments)
    with pytest.raises(InvalidArguments, match=why):
        harbor.enqueue(task, arguments)
    with pytest.raises(InvalidArguments, match=r"item 0"):
        task.enqueue_many([arguments])
    assert harbor.driver.counts()["ready"] == 0


def test_a_job_is_enqueued_like_any_other_or_as_one_item(harbor: Harbor) -> None:
    task = harbor.task(batch=10)(of_document)
    checked = harbor.task(batch=10)(of_checked)
    jobs = [task.enqueue(1), task.delay(number=2), task.using(priority=3).enqueue(Document(3, "de"))]
    jobs += list(task.enqueue_many([{"number": 4}]))
    jobs.append(asyncio.run(task.aenqueue(5)))
    jobs.append(checked.enqueue(Checked(number=6)))
    assert [harbor.job(job).arguments["number"] for job in jobs] == [1, 2, 3, 4, 5, 6]
    assert harbor.job(jobs[2]).arguments == {"number": 3, "language": "de", "tags": []}
    assert_enqueued(harbor, task, number=3)


# --- What is no batch task ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 1.5, "10", True, 10_001, [1]])
def test_a_size_that_is_none_is_refused(harbor: Harbor, size: Any) -> None:
    with pytest.raises(InvalidInput, match="of_document: batch must be a whole number from 1 to 10,000"):
        harbor.task(batch=size)(of_document)


def test_other_options_of_batches_are_checked_where_they_are_written(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="batch_wait must be"):
        harbor.task(batch=5, batch_wait=-1)(of_document)
    with pytest.raises(InvalidInput, match="batch_by must be 'tenant'"):
        harbor.task(batch=5, batch_by="queue")(of_document)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="batch_wait is about batches"):
        harbor.task(batch_wait=1)(of_document)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="did you mean 'batch_wait'"):
        harbor.task(batch=5, batch_wiat=1)(of_document)  # type: ignore[call-overload]


def test_a_handler_that_cannot_take_a_batch_is_refused_where_it_is_defined(harbor: Harbor) -> None:
    def plain(number: int, language: str) -> None: ...
    def nothing() -> None: ...
    def named(*, batch: Batch[Document]) -> None: ...
    def spread(*batch: Any) -> None: ...
    def method(self: Any) -> None: ...
    def with_context(batch: Any, context: Any) -> None: ...
    def a_list(batch: list[int]) -> None: ...
    def of_ints(batch: Batch[int]) -> None: ...
    def by_number(batch: Batch[dict[int, str]]) -> None: ...
    def count(batch: Batch[Document]) -> int: ...  # type: ignore[empty-body]
    def text(batch: Batch[Document]) -> str | None: ...

    for function, why in [
        (plain, "in one parameter, def plain\\(batch: Batch\\[…\\]\\), but it takes \\(number, language\\)"),
        (nothing, "but it takes \\(\\)"),
        (named, "in one parameter"),
        (spread, "in one parameter"),
        (method, "in one parameter"),
        (with_context, "each item of the batch is one"),
        (a_list, "annotated list\\[int\\]"),
        (of_ints, "the arguments of a job have names"),
        (by_number, "arguments have names"),
        (count, "says it returns int"),
        (text, "says it returns str"),
    ]:
        with pytest.raises(InvalidInput, match=why):
            harbor.task(batch=5)(function)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="only a batch task is given"):
        harbor.task(of_document)
    assert not harbor.tasks


# --- In the tests of an application ------------------------------------------------------------------------


def test_inline_runs_a_chunk_of_jobs_as_one_batch(harbor: Harbor) -> None:
    sizes: list[int] = []

    @harbor.task(batch=3)
    async def index(batch: Batch[Document]) -> list[int]:
        sizes.append(len(batch))
        await asyncio.sleep(0)
        return [item.arguments.number * 10 for item in batch]

    with inline(harbor):
        jobs = index.enqueue_many({"number": number} for number in range(5))
        assert [harbor.job(job).result for job in jobs] == [0, 10, 20, 30, 40]
        assert harbor.job(index.enqueue(7)).result == 70
    assert sizes == [3, 2, 1]


def test_inline_settles_items_one_by_one_and_runs_failures_again(harbor: Harbor) -> None:
    calls: list[int] = []

    @harbor.task(batch=10, max_attempts=2)
    def index(batch: Batch[Document]) -> None:
        calls.append(len(batch))
        for item in batch:
            with item:
                if item.arguments.number == 1:
                    item.unrecoverable("nonsense")
                elif item.arguments.number == 2 and item.attempt == 1:
                    raise ValueError("the first time")
                elif item.arguments.number == 3:
                    item.snooze(60)

    with inline(harbor):
        jobs = index.enqueue_many({"number": number} for number in range(4))
        assert [harbor.job(job).state for job in jobs] == ["done", "dlq", "done", "scheduled"]
        assert harbor.job(jobs[2]).failures == 1
    assert calls == [4, 1]
    with inline(harbor, raise_errors=True):
        with pytest.raises(ValueError, match="the first time"):
            index.enqueue(2)
        with pytest.raises(Unrecoverable, match="nonsense"):
            index.enqueue(1)
        assert harbor.job(index.enqueue(0)).state == "done"


def test_inline_a_batch_of_coroutines_has_the_time_of_its_shortest_job(harbor: Harbor) -> None:
    @harbor.task(batch=3, timeout=60, max_attempts=1)
    async def index(batch: Batch[Document]) -> None:
        batch[0].done()
        await asyncio.Event().wait()

    with inline(harbor):
        jobs = harbor.enqueue_many([index.new_job(1), index.using(timeout=0.01).new_job(2)])
        assert [(job.state, job.error) for job in map(harbor.job, jobs)] == [
            ("done", ""),
            ("dlq", "timed out after 0.01 s"),
        ]


def test_inline_keeps_tenants_apart_and_sorts_out_bad_payloads(harbor: Harbor) -> None:
    seen: list[set[str]] = []

    @harbor.task(batch=10, batch_by="tenant")
    def index(batch: Batch[Document]) -> None:
        seen.append({item.tenant for item in batch})

    with inline(harbor):
        jobs = harbor.enqueue_many([index.using(tenant=tenant).new_job(1) for tenant in ("a", "b", "a")])
        assert {harbor.job(job).state for job in jobs} == {"done"}
        driver = harbor.driver
        [bad] = driver.enqueue([index.new_job(1)._replace(payload=b'{"number": "x"}')])
        assert (harbor.job(bad).state, harbor.job(bad).reason) == ("dlq", "bad_payload")
    assert seen == [{"a"}, {"b"}]


def test_drain_in_memory_runs_batches_with_a_real_worker(harbor: Harbor) -> None:
    @harbor.task(batch=100)
    def index(batch: Batch[Document]) -> dict[str, int]:
        return {item.id: len(batch) for item in batch}

    with in_memory(harbor):
        jobs = index.enqueue_many({"number": number} for number in range(30))
        drain(harbor)
        assert sum(1 / harbor.job(job).result for job in jobs) == pytest.approx(
            len({harbor.job(job).attempts[0].started_at for job in jobs})
        )


def test_an_end_counts_once(harbor: Harbor) -> None:
    @harbor.task(batch=5, max_attempts=1)
    def index(batch: Batch[Document]) -> None:
        for item in batch:
            assert (item.state, item.settled) == ("open", False)
            assert item.done(item.arguments.number)
            assert (item.state, item.settled, batch.unsettled) == ("done", True, [])
            with pytest.raises(JobNotInflight, match="settled before, as done"):
                item.fail("too late")
            with item:
                raise Unrecoverable("an error after the end is the handler's own, and shows")

    with inline(harbor):
        job = harbor.job(index.enqueue(5))
        assert (job.state, job.result) == ("done", 5)
