"""Draining, ending after so many jobs, and stopping in good order or in a hurry."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.worker.conftest import Start
from tests.worker.crew import apause, finished, outcomes, pause, until, wrapped_harbor

from taskharbor import Backoff, Cancel, Context, Harbor, InvalidInput, Snooze, StoreUnavailable
from taskharbor.core.model import Status

# --- Draining ----------------------------------------------------------------------------------------------


def test_drain_runs_until_nothing_is_runnable_and_counts(harbor: Harbor) -> None:
    @harbor.task(max_attempts=2)
    def work(how: str, context: Context) -> None:
        match how:
            case "fail":
                raise ValueError
            case "snooze":
                raise Snooze(3600)
            case "cancel":
                raise Cancel

    for how in ("fine", "fine", "fine", "fail", "snooze", "cancel"):
        work.enqueue(how)
    later = work.using(delay=3600).enqueue("fine")
    tally = harbor.worker(fleet=False).drain()
    assert asdict(tally) == {
        "done": 3, "retried": 1, "dead": 1, "cancelled": 1, "snoozed": 1, "released": 0, "lost": 0,
    }  # fmt: skip
    assert tally.ran == 7
    assert harbor.job(later).state == "scheduled"
    counts = harbor.driver.counts()
    assert (counts["done"], counts["dlq"], counts["cancelled"], counts.scheduled) == (3, 1, 1, 2)


def test_drain_of_nothing_ends_at_once(harbor: Harbor) -> None:
    @harbor.task
    def nothing() -> None: ...

    began = time.monotonic()
    assert harbor.worker(fleet=False).drain().ran == 0
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_drain_follows_jobs_that_handlers_enqueue_into_other_queues(harbor: Harbor, kind: str) -> None:
    @harbor.task(queue="a")
    def ping(left: int) -> None:
        if left:
            pong.using(queue="b" if left % 2 else "c").enqueue(left - 1)

    async def apong(left: int) -> None:
        if left:
            await ping.aenqueue(left - 1)

    def spong(left: int) -> None:
        if left:
            ping.enqueue(left - 1)

    pong = harbor.task(queue="b", name="pong")(apong if kind == "async" else spong)
    ping.enqueue(30)
    assert harbor.worker(["a", "b", "c"], fleet=False).drain().done == 31


def test_many_jobs_are_drained_each_exactly_once(harbor: Harbor) -> None:
    ran: list[int] = []

    @harbor.task
    def note(number: int) -> None:
        ran.append(number)

    @harbor.task
    async def anote(number: int) -> None:
        ran.append(number)

    note.enqueue_many({"number": number} for number in range(1_500))
    anote.enqueue_many({"number": number} for number in range(1_500, 3_000))
    assert harbor.worker(fleet=False).drain().done == 3_000
    assert sorted(ran) == list(range(3_000))
    assert harbor.driver.counts()["done"] == 3_000


# --- Ending after so many jobs -----------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 25])
def test_a_worker_ends_after_as_many_jobs_as_it_was_told(harbor: Harbor, most: int) -> None:
    ran = []

    @harbor.task
    def note() -> None:
        ran.append(1)

    note.enqueue_many([{}] * 60)
    assert harbor.worker(fleet=False, max_jobs=most).run().done == most
    assert len(ran) == most
    assert harbor.driver.counts()["ready"] == 60 - most


def test_max_jobs_counts_over_all_queues(harbor: Harbor) -> None:
    ran = []

    @harbor.task
    def note() -> None:
        ran.append(1)

    for queue in "abcdef":
        note.using(queue=queue).enqueue_many([{}] * 5)
    assert harbor.worker(list("abcdef"), fleet=False, max_jobs=7).drain().done == 7
    assert len(ran) == 7
    assert harbor.driver.counts()["ready"] == 23


def test_max_jobs_beyond_what_there_is_lets_drain_end(harbor: Harbor) -> None:
    @harbor.task
    def note() -> None: ...

    note.enqueue_many([{}] * 5)
    assert harbor.worker(["default", "b"], fleet=False, max_jobs=50).drain().done == 5


# --- Stopping ----------------------------------------------------------------------------------------------


def test_stop_works_twice_and_before_start(harbor: Harbor) -> None:
    @harbor.task
    def nothing() -> None: ...

    job = nothing.enqueue()
    worker = harbor.worker(fleet=False)
    worker.stop()
    worker.stop()
    assert worker.run().ran == 0, "one that was told to stop before it began does not begin"
    worker.start()
    worker.stop()
    assert (harbor.job(job).state, harbor.job(job).record.deliveries) == ("ready", 0)
    other = harbor.worker(fleet=False)
    other.start()
    other.stop()
    other.stop()


def test_a_worker_is_used_once(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def nothing() -> None: ...

    worker = start()
    with pytest.raises(InvalidInput, match="make another one"):
        worker.start()


def test_stop_leaves_no_threads_behind(harbor: Harbor) -> None:
    @harbor.task
    def plain() -> None: ...

    @harbor.task
    async def coroutine() -> None: ...

    before = set(threading.enumerate())
    for _ in range(3):
        plain.enqueue_many([{}] * 20)
        coroutine.enqueue_many([{}] * 20)
        assert harbor.worker().drain().done == 40
    until(lambda: set(threading.enumerate()) <= before, "every thread ends")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_handlers_may_end_within_the_grace_time(harbor: Harbor, kind: str) -> None:
    door, begun = threading.Event(), threading.Event()

    def long() -> str:
        begun.set()
        pause(door)
        return "in time"

    async def along() -> str:
        begun.set()
        await apause(door)
        return "in time"

    task = harbor.task(long if kind == "sync" else along)
    job = task.enqueue()
    worker = harbor.worker(fleet=False, grace_s=20, concurrency=1)
    worker.start()
    assert begun.wait(10)
    waiting = task.enqueue()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(worker._stopping.is_set)
    door.set()
    stopping.join()
    assert (harbor.job(job).state, harbor.job(job).result) == ("done", "in time")
    assert harbor.job(waiting).record.attempts == 0
    assert harbor.job(waiting).state == "ready", "nothing new is begun"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_did_not_end_in_time_is_released_and_burns_no_attempt(harbor: Harbor, kind: str) -> None:
    door, begun = threading.Event(), threading.Event()
    ended = []

    def long() -> None:
        begun.set()
        pause(door)

    async def along() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(1)

    job = harbor.task(long if kind == "sync" else along).enqueue()
    worker = harbor.worker(fleet=False, grace_s=0)
    worker.start()
    assert begun.wait(10)
    worker.stop()
    view = harbor.job(job)
    assert (view.state, view.record.attempts, view.record.forgiven) == ("ready", 0, 1)
    assert outcomes(view) == ["released"]
    assert len(ended) == (kind == "async"), "a coroutine is really ended"
    door.set()


def test_a_thread_that_ends_after_its_job_was_released_changes_nothing(harbor: Harbor) -> None:
    door, begun, ended = threading.Event(), threading.Event(), threading.Event()

    @harbor.task
    def long() -> str:
        begun.set()
        pause(door)
        ended.set()
        return "too late"

    job = long.enqueue()
    worker = harbor.worker(fleet=False, grace_s=0)
    worker.start()
    assert begun.wait(10)
    worker.stop()
    door.set()
    assert ended.wait(10)
    view = harbor.job(job)
    assert (view.state, view.result, outcomes(view)) == ("ready", None, ["released"])


def test_a_second_stop_in_a_hurry_ends_the_grace_time(harbor: Harbor) -> None:
    door, begun = threading.Event(), threading.Event()

    @harbor.task
    def long() -> None:
        begun.set()
        pause(door)

    job = long.enqueue()
    worker = harbor.worker(fleet=False, grace_s=600)
    worker.start()
    assert begun.wait(10)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(worker._stopping.is_set)
    worker.hurry()
    stopping.join(15)
    assert not stopping.is_alive()
    assert harbor.job(job).status is Status.READY
    door.set()


# --- The fleet ---------------------------------------------------------------------------------------------


def test_a_worker_is_registered_while_it_works_and_signs_off_when_it_stops(harbor: Harbor, start: Start) -> None:
    @harbor.task(queue="mail")
    def send() -> None: ...

    worker = start({"mail": 3, "slow": 2}, fleet=True, name="crab")
    [row] = harbor.driver.workers()
    assert (row.id, set(row.queues), row.slots) == ("crab", {"mail", "slow"}, 5)
    assert row.pid
    assert row.hostname
    assert row.version
    assert row.last_heartbeat is not None
    worker.stop()
    assert list(harbor.driver.workers()) == []


def test_a_worker_that_cannot_start_says_why_and_can_be_stopped_and_started_again(tmp_path: Path) -> None:
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}", retry=Backoff(base=0))

    @harbor.task
    def nothing() -> str:
        return "ran"

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    worker = harbor.worker()
    wrapped.instead = {"now": away}
    with pytest.raises(StoreUnavailable):
        worker.start()
    wrapped.instead = {"heartbeat": away}
    with pytest.raises(StoreUnavailable):
        worker.start()
    wrapped.instead = {}
    job = nothing.enqueue()
    worker.start()
    assert harbor.wait(job, 10) == "ran"
    worker.stop()


def test_a_worker_that_could_not_start_can_be_stopped(tmp_path: Path) -> None:
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}")

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    wrapped.instead = {"now": away}
    worker = harbor.worker(take_all=True)
    with pytest.raises(StoreUnavailable):
        worker.run()
    worker.stop()


def test_a_thread_that_sees_the_stop_and_returns_early_gives_its_job_back(harbor: Harbor) -> None:
    @harbor.task
    def long(context: Context) -> str:
        until(lambda: context.cancelled)
        return "as far as I got"

    job = long.enqueue()
    worker = harbor.worker(grace_s=0.01)
    worker.start()
    until(lambda: worker._lanes[0].running)
    worker.stop()
    view = harbor.job(job)
    assert (view.state, view.record.attempts, outcomes(view)) == ("ready", 0, ["released"])


def test_a_thread_that_sees_its_timeout_and_returns_has_failed(harbor: Harbor, start: Start) -> None:
    @harbor.task(timeout=0.05, max_attempts=1)
    def long(context: Context) -> str:
        until(lambda: context.cancelled)
        return "as far as I got"

    job = long.enqueue()
    start()
    [view] = finished(harbor, job)
    assert (view.state, view.attempts[-1].error) == ("dlq", "timed out after 0.05 s")
