"""Draining, ending after so many jobs, and stopping in good order or in a hurry."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import apause, finished, outcomes, pause, wrapped_harbor

from taskharbor import (
    Backoff,
    Cancel,
    Context,
    Harbor,
    InvalidInput,
    SchemaMissing,
    Snooze,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from taskharbor.core.model import Status
from taskharbor.worker.held import Held

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
        "unbegun": 0,
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


def test_a_job_that_a_slot_did_not_begin_does_not_count(harbor: Harbor, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, late = [], [True, True]
    monkeypatch.setattr("taskharbor.worker.slots._is_expired", lambda *_: bool(late) and late.pop())

    @harbor.task
    def note() -> None:
        ran.append(1)

    @harbor.task
    async def anote() -> None:
        ran.append(1)

    for task in (note, anote):
        task.using(expires_in=3600).enqueue_many([{}] * 3)
    tally = harbor.worker(fleet=False, max_jobs=4).run()
    assert (tally.done, len(ran), tally.released) == (4, 4, 2)


def test_a_job_whose_lease_is_lost_before_it_began_does_not_count(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def note() -> None: ...

    worker = start("another", max_jobs=5)
    note.enqueue()
    [leased] = harbor.driver.reserve("default")
    held = Held(leased, note, time.monotonic(), 30.0)
    worker._allowance.took(0, 1)
    worker._heartbeat._lose(held)
    worker._claimers[0]._return(held)
    assert worker._allowance._taken == 0, "it was taken once, and is given back once"


# --- Settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("lease_s", value) for value in (0, -1, math.nan, math.inf, 10**400, True, "30", None)),
        *(("grace_s", value) for value in (-1, -0.5, math.nan, math.inf, "25", None)),
        *(("poll_interval_s", value) for value in (0, math.nan, math.inf)),
        *(("batch", value) for value in (0, 1.5, -3, math.nan, True, "500", None)),
        *(("concurrency", value) for value in (0, 2.5, -1, False)),
        *(("max_jobs", value) for value in (0, 1.5, -1)),
        *(("retention", value) for value in (30, timedelta(days=-1))),
        ("queues", {"default": 0}),
        ("queues", {"default": 1.5}),
        ("queues", []),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_setting_that_makes_no_sense_is_refused_where_it_is_given(harbor: Harbor, name: str, value: object) -> None:
    harbor.task(name="t")(lambda: None)
    with pytest.raises(InvalidInput, match=name if name != "queues" else "queue"):
        harbor.worker(**{name: value})


def test_settings_at_their_bounds_are_taken(harbor: Harbor) -> None:
    harbor.task(name="t")(lambda: None)
    harbor.worker(grace_s=0, lease_s=0.1, batch=1, concurrency=1, max_jobs=1, retention=timedelta(0))


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
def test_what_did_not_end_in_time_is_released_and_burns_no_attempt(
    harbor: Harbor, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "sync":
        request.getfixturevalue("unheeded")
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


@pytest.mark.usefixtures("unheeded")
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


def test_a_second_stop_in_a_hurry_ends_the_grace_time(harbor: Harbor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "taskharbor")
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
    until(lambda: "stopping: 1 job has 600 s to end" in caplog.text)
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


@pytest.mark.parametrize(
    "error", [StoreRefused("wrong password"), SchemaMissing("no tables"), StoreReadOnly("no writes"), StoreFull("full")]
)
def test_what_waiting_cannot_cure_ends_a_worker_at_its_start(tmp_path: Path, error: StoreError) -> None:
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}")

    def refuse(*_: object, **__: object) -> None:
        raise error

    wrapped.instead = {"now": refuse}
    worker = harbor.worker(take_all=True)
    with pytest.raises(type(error)):
        worker.run()
    worker.stop()


@pytest.mark.parametrize("what", ["now", "heartbeat"])
def test_a_worker_that_starts_while_the_store_is_away_says_so_once_and_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}")
    tries: list[int] = []

    def away(*_: object, **__: object) -> None:
        tries.append(1)
        raise StoreUnavailable("connection refused")

    @harbor.task
    def work() -> str:
        return "ran"

    job = work.enqueue()
    wrapped.instead = {what: away}
    worker = harbor.worker()
    running = threading.Thread(target=worker.run)
    running.start()
    until(lambda: len(tries) >= 3, "it tries again and again")
    wrapped.instead = {}
    assert finished(harbor, job)[0].result == "ran"
    until(lambda: "the store is back" in caplog.text)
    worker._stopping.set()
    running.join(20)
    assert not running.is_alive()
    messages = [record.getMessage() for record in caplog.records]
    assert sum("the store cannot be used" in message for message in messages) == 1


def test_a_worker_that_waits_for_its_store_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.worker.outage.FIRST_WAIT_S", 600.0)
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}")
    tried = threading.Event()

    def away(*_: object, **__: object) -> None:
        tried.set()
        raise StoreUnavailable("connection refused")

    wrapped.instead = {"now": away}
    worker = harbor.worker(take_all=True)
    running = threading.Thread(target=worker.run)
    running.start()
    assert tried.wait(10)
    worker.stop()
    running.join(20)
    assert not running.is_alive()


@pytest.mark.usefixtures("unheeded")
@pytest.mark.parametrize("how", ["swallows", "to a thread"])
def test_a_coroutine_that_does_not_stop_does_not_hold_up_the_worker(harbor: Harbor, how: str) -> None:
    door, begun = threading.Event(), threading.Event()

    @harbor.task
    async def stubborn() -> None:
        begun.set()
        if how == "to a thread":
            await asyncio.to_thread(pause, door)
        while not door.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await apause(door)

    job = stubborn.enqueue()
    worker = harbor.worker(fleet=False, grace_s=0)
    worker.start()
    assert begun.wait(10)
    began = time.monotonic()
    worker.stop()
    took_s = time.monotonic() - began
    door.set()
    assert took_s < 4, "longer than its own five seconds would be"
    assert harbor.job(job).state == "ready"


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
