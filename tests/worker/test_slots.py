"""How many handlers run at once, in which order, and what happens to jobs that wait behind them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import apause, finished, outcomes, pause, wrapped_harbor

from taskharbor import Harbor, InvalidInput
from taskharbor.core.limits import Limits
from taskharbor.core.model import LeasedJob, NewJob
from taskharbor.core.outcome import Done, Released
from taskharbor.testing.helpers import leased_jobs
from taskharbor.testing.times import HOUR, FakeClock
from taskharbor.worker import lane as lanes
from taskharbor.worker import watchdog
from taskharbor.worker.executor import Executor
from taskharbor.worker.held import Held
from taskharbor.worker.lane import Lane
from taskharbor.worker.slots import CoroutineSlots, ThreadSlots


class Crowd:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.seen = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self.inside += 1
            self.seen += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self._lock:
            self.inside -= 1


def crowded(harbor: Harbor, crowd: Crowd, door: threading.Event) -> tuple[Any, Any]:
    @harbor.task
    def plain() -> None:
        crowd.enter()
        pause(door)
        crowd.leave()

    @harbor.task
    async def coroutine() -> None:
        crowd.enter()
        await apause(door)
        crowd.leave()

    return plain, coroutine


def test_no_more_handlers_run_at_once_than_there_are_slots_whatever_their_kind(harbor: Harbor, start: Start) -> None:
    crowd, door = Crowd(), threading.Event()
    plain, coroutine = crowded(harbor, crowd, door)
    jobs = [(plain, coroutine)[number % 2].enqueue() for number in range(12)]
    start(concurrency=4)
    until(lambda: crowd.inside == 4)
    door.set()
    finished(harbor, *jobs)
    assert crowd.most == 4
    assert crowd.seen == 12


@pytest.mark.parametrize("kind", [0, 1], ids=["sync", "async"])
def test_one_kind_alone_may_use_every_slot(harbor: Harbor, start: Start, kind: int) -> None:
    crowd, door = Crowd(), threading.Event()
    task = crowded(harbor, crowd, door)[kind]
    jobs = [task.enqueue() for _ in range(7)]
    start(concurrency=5)
    until(lambda: crowd.inside == 5)
    door.set()
    finished(harbor, *jobs)
    assert crowd.most == 5


def test_each_queue_has_slots_of_its_own(harbor: Harbor, start: Start) -> None:
    door = threading.Event()
    crowds = {"mail": Crowd(), "slow": Crowd()}

    @harbor.task
    def stay(where: str) -> None:
        crowds[where].enter()
        pause(door)
        crowds[where].leave()

    jobs = [stay.using(queue=queue).enqueue(queue) for queue in crowds for _ in range(6)]
    start({"mail": 3, "slow": 1})
    until(lambda: (crowds["mail"].inside, crowds["slow"].inside) == (3, 1))
    door.set()
    finished(harbor, *jobs)
    assert (crowds["mail"].most, crowds["slow"].most) == (3, 1)


def test_a_worker_serves_the_queues_that_its_tasks_name_unless_told_otherwise(harbor: Harbor) -> None:
    @harbor.task(queue="mail")
    def send() -> None: ...

    jobs = [send.enqueue(), send.using(queue="default").enqueue(), send.using(queue="other").enqueue()]
    assert harbor.worker(fleet=False).drain().done == 2
    assert [harbor.job(job).state for job in jobs] == ["done", "done", "ready"]
    assert harbor.worker("other", fleet=False).drain().done == 1


@pytest.mark.parametrize("queues", [[], {}, {"a": 0}, {"a": True}, [""], {"a": -1}])
def test_queues_that_make_no_sense_are_refused(harbor: Harbor, queues: Any) -> None:
    with pytest.raises(InvalidInput):
        harbor.worker(queues, take_all=True)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"lease_s": 0}, {"grace_s": -1}, {"max_jobs": 0}, {"batch": 0}, {"poll_interval_s": 0}],
)
def test_numbers_that_make_no_sense_are_refused(harbor: Harbor, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        harbor.worker(take_all=True, **options)


def test_a_worker_without_handlers_says_what_to_do(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="define some with @harbor.task, or use take_all=True"):
        harbor.worker()


# --- Order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_with_one_slot_jobs_run_by_priority_and_then_as_they_came(harbor: Harbor, start: Start, kind: str) -> None:
    ran: list[int] = []

    def note(number: int) -> None:
        ran.append(number)

    async def anote(number: int) -> None:
        ran.append(number)

    task = harbor.task(note if kind == "sync" else anote)
    jobs = [task.using(priority=number % 5).enqueue(number) for number in range(40)]
    start(concurrency=1)
    finished(harbor, *jobs)
    assert ran == sorted(range(40), key=lambda number: (-(number % 5), number))


def test_neither_kind_keeps_the_other_waiting_for_ever(harbor: Harbor, start: Start) -> None:
    ran: deque[str] = deque()
    stop = threading.Event()

    @harbor.task
    def plain() -> None:
        ran.append("plain")
        stop.wait(0.002)
        if not stop.is_set():
            plain.enqueue()

    @harbor.task
    async def coroutine() -> None:
        ran.append("coroutine")
        if not stop.is_set():
            await coroutine.aenqueue()

    plain.enqueue_many([{}] * 20)
    coroutine.enqueue_many([{}] * 20)
    start(concurrency=1)
    try:
        until(lambda: ran.count("plain") >= 60 and ran.count("coroutine") >= 60, "both kinds have their turn")
    finally:
        stop.set()


# --- Jobs that wait behind others --------------------------------------------------------------------------


def held_jobs(harbor: Harbor, count: int) -> list[Held]:
    leases: list[LeasedJob] = leased_jobs(harbor.driver, count)
    return [Held(leased, None, 0.0, 3600.0) for leased in leases]


def test_a_lane_is_stuck_when_jobs_wait_and_no_slot_has_begun_one_for_long(harbor: Harbor) -> None:
    clock = FakeClock()
    lane = Lane("default", 1, 100, monotonic=clock.monotonic)
    first, second, third = held_jobs(harbor, 3)
    lane.add([first, second, third])
    clock.advance(60)
    assert not lane.stuck(), "a slot is free"
    assert lane.wait_for_turn(lambda: False)
    assert lane.begin(lane.ready.popleft())
    clock.advance(lanes.STUCK_S)
    assert not lane.stuck(), "not for long"
    clock.advance(timedelta(milliseconds=1))
    assert lane.stuck()
    assert lane.room() == 0, "whoever has jobs to give back takes no new ones"
    lane.end(first)
    assert lane.begin(lane.ready.popleft())
    assert not lane.stuck(), "one has begun"
    clock.advance(60)
    assert lane.take_back() == [third]
    assert not lane.stuck(), "nobody waits"


def test_jobs_behind_stuck_slots_go_back_and_others_take_them(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, stuck = threading.Event(), threading.Event()
    ran: deque[str] = deque()

    @harbor.task
    def quick() -> None:
        ran.append("quick")

    @harbor.task
    def block() -> None:
        stuck.set()
        pause(door)

    # Many quick jobs first, so that the worker fetches ahead, and then one that holds up the rest.
    quick.enqueue_many([{}] * 300)
    blocker = block.enqueue()
    behind = [quick.enqueue() for _ in range(30)]
    first = start(concurrency=1, name="first", lease_s=30)
    assert stuck.wait(20)
    until(lambda: any(harbor.job(job).record.lease_owner == "first" for job in behind), "some are fetched ahead")
    monkeypatch.setattr(lanes, "STUCK_S", 0.1)
    until(lambda: all(harbor.job(job).state == "ready" for job in behind), "they go back")
    assert {harbor.job(job).record.attempts for job in behind} == {0}
    second = start(concurrency=1, name="second")
    views = finished(harbor, *behind)
    assert {outcomes(view)[-1] for view in views} == {"succeeded"}
    assert {view.attempts[-1].worker for view in views} == {"second"}
    assert all(len(view.attempts) == 1 for view in views), "what never began was no attempt"
    door.set()
    assert finished(harbor, blocker)[0].attempts[-1].worker == "first"
    # Counted when the store has been told, which the store shows a moment earlier.
    until(lambda: first.tally.released > 0)
    until(lambda: second.tally.done == 30)


def test_a_job_whose_lease_ended_while_it_waited_is_not_begun(harbor: Harbor) -> None:
    clock = FakeClock()
    lane = Lane("default", 1, 100, monotonic=clock.monotonic)
    late, cancelled, lost, good = held_jobs(harbor, 4)
    late.deadline = 1.0
    cancelled.asked_to_cancel = True
    cancelled.stop()
    lost.lose()
    clock.advance(1)
    assert [lane.begin(held) for held in (late, cancelled, lost, good)] == [False, False, False, True]
    assert list(lane.done) == [late, cancelled, lost]
    assert lane.running == {good}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_that_expired_while_it_waited_for_a_slot_is_not_begun(harbor: Harbor, kind: str) -> None:
    ran: list[int] = []

    def offer(number: int) -> None:
        ran.append(number)

    async def aoffer(number: int) -> None:
        ran.append(number)

    task = harbor.task(offer if kind == "sync" else aoffer)
    task.using(expires_in=60).enqueue(1)
    task.using(expires_in=3600).enqueue(2)
    late, good = [
        Held(leased, task, time.monotonic(), 3600.0)
        for leased in harbor.driver.reserve("default", lease_for=HOUR, limit=2)
    ]
    assert late.job.expires_at is not None
    moment = late.job.expires_at
    lane, executor = Lane("default", 1, 100), Executor(Limits())
    threads, coroutines = ThreadSlots(lane, executor, lambda: moment), CoroutineSlots(executor, lambda: moment)
    coroutines.start()
    coroutines.serve(lane)
    threads.start()
    lane.put(late)
    lane.put(good)
    until(lambda: len(lane.done) == 2)
    threads.stop()
    coroutines.stop()
    assert ran == [2]
    assert (late.ending, late.started_at) == (Released(), None)
    assert (good.ending, good.started_at) == (Done(), moment)


# --- What one job leaves behind ----------------------------------------------------------------------------

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_job_sets_in_a_context_variable_is_not_for_the_next_to_see(harbor: Harbor, kind: str) -> None:
    seen: list[str] = []

    def see(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    async def asee(name: str) -> None:
        await asyncio.sleep(0)
        see(name)

    task = harbor.task(see if kind == "sync" else asee)
    task.enqueue_many({"name": f"tenant {number}"} for number in range(200))
    assert harbor.worker(fleet=False, concurrency=1).drain().done == 200
    assert seen == ["nobody"] * 200


def test_a_coroutine_that_cancels_itself_and_returns_harms_no_other(harbor: Harbor) -> None:
    @harbor.task(max_attempts=1)
    async def work(number: int) -> None:
        task = asyncio.current_task()
        if number % 3 == 0:
            assert task is not None
            task.cancel()
        else:
            await asyncio.sleep(0)

    work.enqueue_many({"number": number} for number in range(120))
    worker = harbor.worker(fleet=False, concurrency=2)
    assert worker.drain().done == 120
    assert worker._lanes[0]._free == 2, "every permit is given on"


async def exit_in_a_task() -> None:
    async def inner() -> None:
        sys.exit(2)

    await asyncio.gather(inner(), asyncio.sleep(0))


async def interrupt_in_a_task() -> None:
    async def inner() -> None:
        raise KeyboardInterrupt

    await asyncio.create_task(inner())


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    raise ValueError


@pytest.mark.parametrize("mischief", [exit_in_a_task, interrupt_in_a_task, stop_the_loop])
def test_the_event_loop_outlives_what_a_handler_does_to_it(
    harbor: Harbor, start: Start, mischief: Callable[[], Any]
) -> None:
    door, begun = threading.Event(), threading.Event()

    @harbor.task(max_attempts=1)
    async def bad() -> None:
        await mischief()

    @harbor.task
    async def innocent() -> str:
        begun.set()
        await apause(door)
        return "fine"

    beside = innocent.enqueue()
    start(concurrency=2)
    assert begun.wait(10)
    [view] = finished(harbor, bad.enqueue())
    assert view.state == "dlq"
    after = innocent.enqueue()
    door.set()
    assert [view.result for view in finished(harbor, beside, after)] == ["fine", "fine"]


def test_a_clock_that_fails_costs_a_job_an_attempt_and_no_slot(tmp_path: Any) -> None:
    harbor, wrapped = wrapped_harbor(f"memory://{tmp_path.name}")
    real = wrapped.driver.now
    failed: list[int] = []

    def fail_in_slots() -> Any:
        if threading.current_thread().name.startswith("taskharbor-default") and not failed:
            failed.append(1)
            raise OSError("no clock")
        return real()

    @harbor.task(max_attempts=1)
    def work() -> str:
        return "done"

    wrapped.instead = {"now": fail_in_slots}
    worker = harbor.worker(fleet=False, concurrency=1)
    job = work.enqueue()
    worker.start()
    try:
        assert finished(harbor, job)[0].state == "dlq"
        assert finished(harbor, work.enqueue())[0].result == "done"
    finally:
        worker.stop()


def test_a_thread_that_died_is_replaced(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def work() -> str:
        return "done"

    worker = start(concurrency=1)
    [slots] = worker._threads
    dead = threading.Thread(target=lambda: None)
    dead.start()
    dead.join()
    slots._threads = [dead]
    assert finished(harbor, work.enqueue())[0].result == "done"
    [alive] = slots._threads
    assert alive.is_alive()


# --- A blocked event loop ----------------------------------------------------------------------------------


def test_jobs_that_wait_for_a_blocked_event_loop_go_back_and_plain_ones_run(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "SILENT_S", 0.1)
    door, begun = threading.Event(), threading.Event()

    @harbor.task
    async def block() -> None:
        begun.set()
        pause(door)  # as a library does that knows nothing of event loops

    @harbor.task
    async def other() -> str:
        return "ran"

    @harbor.task
    def plain() -> str:
        return "ran"

    blocker = block.enqueue()
    first = start(concurrency=4, name="first", poll_interval_s=0.02)
    assert begun.wait(10)
    waiting = [other.enqueue() for _ in range(3)]
    until(lambda: first._lanes[0].loop_is_silent, "it is noticed")
    until(lambda: all(harbor.job(job).state == "ready" for job in waiting), "they go back")
    assert finished(harbor, plain.enqueue())[0].result == "ran"
    start(concurrency=1, name="second")
    views = finished(harbor, *waiting)
    assert {(view.attempts[-1].worker, len(view.attempts)) for view in views} == {("second", 1)}
    door.set()
    finished(harbor, blocker)
    until(lambda: not first._lanes[0].loop_is_silent, "it answers again")
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "blocks it (running: block)" in line.getMessage()


def test_drain_waits_for_a_blocked_event_loop_and_runs_the_rest(
    harbor: Harbor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "SILENT_S", 0.05)
    ran: list[str] = []

    @harbor.task
    async def work(name: str) -> None:
        if name == "first":
            until(lambda: worker._lanes[0].loop_is_silent)
        ran.append(name)

    work.enqueue("first")
    for _ in range(5):
        work.enqueue("other")
    worker = harbor.worker(fleet=False, concurrency=2)
    worker.drain()
    assert ran == ["first"] + ["other"] * 5


def test_few_jobs_with_large_payloads_are_fetched_ahead(harbor: Harbor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "AHEAD_BYTES", 1_000)
    lane = Lane("default", 4, 100)
    lane.pace.note(1_000_000)
    assert lane.room() == 100, "a whole batch, for all it knows"
    harbor.driver.enqueue([NewJob("large", b"x" * 200, queue="large")])
    lane.hold(harbor.driver.reserve("large"), {}, 0.0, 30.0)
    assert lane.room() == 4 + 5, "one for each slot, and as many as are not too much together"


def test_few_large_results_are_told_at_once(harbor: Harbor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "RESULT_BYTES", 1_000)
    lane = Lane("default", 4, 100)
    done = held_jobs(harbor, 9)
    for number, held in enumerate(done):
        held.ending = Done(b"x" * 400 if number % 2 else None)
        lane.end(held)
    assert [lane.finished(100), lane.finished(100)] == [done[:6], done[6:]], "until a thousand bytes are there"
