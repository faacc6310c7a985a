"""How the jobs of a batch end: together, one by one, and each as if it had run alone."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import PATIENCE_S, final_rows, finished, outcomes

from taskharbor import Batch, Cancel, Harbor, Retry, Snooze, Unrecoverable
from taskharbor.core.limits import Limits
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import empty_store

Numbers = Batch[dict[str, int]]


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "postgresql":
        yield f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
        return
    made: str = request.getfixturevalue("postgres_url")
    driver = open_driver(made)
    driver.migrate()
    driver.close()
    empty_store(made)
    yield made


def numbers(task: Any, count: int) -> list[Any]:
    return list(task.enqueue_many({"n": n} for n in range(count)))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_backlog_comes_in_full_batches_and_every_job_is_done_once(
    harbor: Harbor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.worker.gathering.FILL_S", PATIENCE_S)  # however slow the store is today
    sizes: list[int] = []

    def index(batch: Numbers) -> list[int]:
        sizes.append(len(batch))
        return [item.arguments["n"] for item in batch]

    async def aindex(batch: Numbers) -> list[int]:
        return index(batch)

    task = harbor.task(batch=100, name="index")(index if kind == "sync" else aindex)
    jobs = numbers(task, 1_000)
    tally = harbor.worker(fleet=False, batch=70).drain()
    assert (tally.done, tally.ran) == (1_000, 1_000)
    assert sizes == [100] * 10
    assert [harbor.job(job).result for job in jobs[::97]] == list(range(0, 1_000, 97))
    assert final_rows(harbor.driver) == {job.id: 1 for job in jobs}


def test_a_list_a_mapping_or_nothing_are_results_and_an_exception_among_them_is_a_failure(harbor: Harbor) -> None:
    @harbor.task(batch=10)
    def by_id(batch: Numbers) -> dict[str, int]:
        return {item.id: item.arguments["n"] for item in batch if item.arguments["n"] != 1}

    @harbor.task(batch=10)
    def nothing(batch: Numbers) -> None: ...

    async def one(n: int) -> int:
        await asyncio.sleep(0)
        if n == 1:
            raise ValueError("one is odd")
        if n == 2:
            raise Unrecoverable("two is worse")
        return n * n

    @harbor.task(batch=10, max_attempts=1)
    async def gathered(batch: Numbers) -> list[Any]:
        return await asyncio.gather(*(one(item.arguments["n"]) for item in batch), return_exceptions=True)

    mapped, plain, each = numbers(by_id, 3), numbers(nothing, 2), numbers(gathered, 4)
    harbor.worker(fleet=False).drain()
    assert [harbor.job(job).result for job in mapped] == [0, None, 2]
    assert [(harbor.job(job).state, harbor.job(job).result) for job in plain] == [("done", None)] * 2
    assert [harbor.job(job).state for job in each] == ["done", "dlq", "dlq", "done"]
    assert [harbor.job(job).reason for job in each[1:3]] == ["max_attempts", "unrecoverable"]
    error = harbor.job(each[1]).error
    assert "ValueError: one is odd" in error and "in one" in error
    assert "batch_calls" not in error


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([1], "1 results for 3 jobs"),
        ({"nobody": 1}, "'nobody' is no job"),
        (3, "returned int"),
        ("abc", "returned str"),
    ],
)
def test_results_that_fit_no_batch_are_told_for_every_job_and_the_work_is_not_done_again(
    harbor: Harbor, value: Any, why: str
) -> None:
    calls: list[int] = []

    @harbor.task(batch=10)
    def index(batch: Numbers) -> Any:
        calls.append(len(batch))
        return value

    jobs = numbers(index, 3)
    harbor.worker(fleet=False).drain()
    assert calls == [3]
    assert {(harbor.job(job).state, harbor.job(job).reason) for job in jobs} == {("dlq", "unrecoverable")}
    assert all(why in harbor.job(job).error for job in jobs)


def test_one_result_that_cannot_be_kept_harms_no_other(url: str) -> None:
    driver = open_driver(url, limits=Limits(max_payload_bytes=1_000))
    driver.migrate()
    with Harbor(url, driver=driver) as harbor:

        @harbor.task(batch=10)
        def index(batch: Numbers) -> list[Any]:
            return ["fine", object(), "x" * 2_000, "fine"]

        jobs = numbers(index, 4)
        harbor.worker(fleet=False).drain()
        assert [harbor.job(job).state for job in jobs] == ["done", "dlq", "dlq", "done"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_handler_raises_fails_each_unsettled_job_as_if_it_alone_had_failed(harbor: Harbor, kind: str) -> None:
    sizes: list[int] = []

    def index(batch: Numbers) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            batch[0].done("early")
            raise ValueError("the index is away")

    async def aindex(batch: Numbers) -> None:
        index(batch)

    task = harbor.task(batch=10, name="index", max_attempts=2)(index if kind == "sync" else aindex)
    jobs = [task.enqueue(n=0), task.using(max_attempts=1).enqueue(n=1), task.enqueue(n=2)]
    tally = harbor.worker(fleet=False).drain()
    views = [harbor.job(job) for job in jobs]
    assert [(view.state, outcomes(view)) for view in views] == [
        ("done", ["succeeded"]),
        ("dlq", ["dead"]),
        ("done", ["retried", "succeeded"]),
    ]
    assert views[0].result == "early"
    assert "ValueError: the index is away" in views[1].error and "in index" in views[1].error
    assert sizes == [3, 1]
    assert (tally.done, tally.retried, tally.dead) == (2, 1, 1)


@pytest.mark.parametrize(
    ("signal", "state", "outcome"),
    [
        (Snooze(60), "scheduled", "snoozed"),
        (Retry(60, "later"), "scheduled", "retried"),
        (Cancel("no need"), "cancelled", "cancelled"),
        (Unrecoverable("broken"), "dlq", "dead"),
    ],
)
def test_a_signal_raised_for_the_batch_is_for_all_that_are_unsettled(
    harbor: Harbor, signal: Exception, state: str, outcome: str
) -> None:
    @harbor.task(batch=10)
    def index(batch: Numbers) -> None:
        batch[1].done()
        raise signal

    jobs = numbers(index, 3)
    harbor.worker(fleet=False).drain()
    views = [harbor.job(job) for job in jobs]
    assert [view.state for view in views] == [state, "done", state]
    assert [outcomes(view) for view in views] == [[outcome], ["succeeded"], [outcome]]


def test_every_item_may_end_in_its_own_way(harbor: Harbor) -> None:
    @harbor.task(batch=20, max_attempts=2)
    def index(batch: Numbers) -> None:
        for item in batch:
            match item.arguments["n"]:
                case 0:
                    item.done({"kept": True})
                case 1 if item.attempt == 1:
                    item.fail(ValueError("once"))
                case 2:
                    item.fail("in words")
                case 3:
                    item.retry(delay=600)
                case 4:
                    item.snooze(600)
                case 5:
                    item.cancel("no need")
                case 6:
                    item.unrecoverable("broken")
                case 7:
                    item.fail(Snooze(600))
                case 8:
                    with item:
                        raise KeyError("mine alone")
                case 9:
                    with item:
                        item.done("inside")

    jobs = numbers(index, 11)
    harbor.worker(fleet=False).drain()
    views = [harbor.job(job) for job in jobs]
    assert [(view.state, outcomes(view)) for view in views] == [
        ("done", ["succeeded"]),
        ("done", ["retried", "succeeded"]),
        ("dlq", ["retried", "dead"]),
        ("scheduled", ["retried"]),
        ("scheduled", ["snoozed"]),
        ("cancelled", ["cancelled"]),
        ("dlq", ["dead"]),
        ("scheduled", ["snoozed"]),
        ("dlq", ["retried", "dead"]),
        ("done", ["succeeded"]),
        ("done", ["succeeded"]),
    ]
    assert (views[0].result, views[9].result) == ({"kept": True}, "inside")
    assert views[2].error == "in words"
    assert "KeyError: 'mine alone'" in views[8].error and "in index" in views[8].error


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_early_end_is_in_the_store_while_the_handler_goes_on(harbor: Harbor, start: Start, kind: str) -> None:
    door = threading.Event()

    def settle(batch: Numbers) -> None:
        batch[0].done(1)
        batch[1].unrecoverable("broken")

    def index(batch: Numbers) -> None:
        settle(batch)
        assert door.wait(PATIENCE_S)

    async def aindex(batch: Numbers) -> None:
        settle(batch)
        while not door.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.005)

    task = harbor.task(batch=10, name="index", batch_wait=0.1)(index if kind == "sync" else aindex)
    jobs = numbers(task, 3)
    start()
    first, second = finished(harbor, *jobs[:2])
    assert (first.result, second.reason) == (1, "unrecoverable")
    assert harbor.job(jobs[2]).state in ("claimed", "running")
    door.set()
    assert [view.state for view in finished(harbor, jobs[2])] == ["done"]


def test_a_payload_that_does_not_fit_is_left_out_and_its_neighbours_run(harbor: Harbor) -> None:
    seen: list[int] = []

    @harbor.task(batch=10)
    def index(batch: Numbers) -> None:
        seen.extend(item.arguments["n"] for item in batch)

    good = numbers(index, 2)
    bad = harbor.driver.enqueue([index.new_job(n=5)._replace(payload=text) for text in (b'{"n": "x"}', b"[", b"[1]")])
    harbor.worker(fleet=False).drain()
    assert seen == [0, 1]
    assert {harbor.job(job).state for job in good} == {"done"}
    assert {(harbor.job(job).state, harbor.job(job).reason) for job in bad} == {("dlq", "bad_payload")}


def test_an_item_knows_its_job(harbor: Harbor) -> None:
    seen: list[Any] = []

    @harbor.task(batch=10)
    def index(batch: Numbers) -> None:
        for item in batch:
            item.progress(1, 2, "half")
            seen.append((item.id, item.tenant, item.meta["from"], item.attempt, item.fence, item.job.queue))
        batch.extend(30)
        assert not batch.cancelled
        assert batch.arguments == [{"n": 0}, {"n": 1}]
        assert [batch[0], *batch[1:]] == list(batch)

    jobs = [index.using(tenant=f"t{n}", meta={"from": "test"}).enqueue(n=n) for n in range(2)]
    harbor.worker(fleet=False).drain()
    assert seen == [(jobs[n].id, f"t{n}", "test", 1, 1, "default") for n in range(2)]
    assert [harbor.job(job).progress.note for job in jobs] == ["half", "half"]  # type: ignore[union-attr]


def test_plain_jobs_and_batches_of_several_kinds_share_a_queue(harbor: Harbor) -> None:
    ran: Counter[str] = Counter()

    @harbor.task
    def plain(n: int) -> None:
        ran["plain"] += 1

    @harbor.task
    async def coroutine(n: int) -> None:
        ran["coroutine"] += 1

    @harbor.task(batch=50)
    def index(batch: Numbers) -> None:
        ran["index"] += len(batch)

    @harbor.task(batch=7)
    async def aindex(batch: Numbers) -> None:
        assert len(batch) <= 7
        ran["aindex"] += len(batch)

    tasks: list[Any] = [plain, coroutine, index, aindex]
    jobs = list(harbor.enqueue_many(tasks[n % 4].new_job(n=n) for n in range(400)))
    tally = harbor.worker(fleet=False, concurrency=3).drain()
    assert tally.done == 400
    assert ran == {"plain": 100, "coroutine": 100, "index": 100, "aindex": 100}
    until(lambda: final_rows(harbor.driver) == {job.id: 1 for job in jobs}, "history has everything")
