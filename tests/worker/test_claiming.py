"""What is claimed is run or given back: when handlers slow down, when the worker stops, when a driver fails."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.conftest import Start
from tests.worker.crew import Wrapped, finished, outcomes, pause, wrapped_harbor
from tests.worker.test_quarantine import suspicious

from taskharbor import Harbor
from taskharbor.worker import quarantine


def counted(wrapped: Wrapped, name: str) -> list[int]:
    """Counts the calls of an operation."""
    calls: list[int] = []
    real = getattr(wrapped.driver, name)

    def instead(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return real(*args, **kwargs)

    wrapped.instead[name] = instead
    return calls


def test_jobs_fetched_ahead_go_back_when_handlers_become_slow(harbor: Harbor, start: Start) -> None:
    go_on = threading.Event()
    urgent_ran = threading.Event()

    @harbor.task
    def quick() -> None: ...

    @harbor.task
    def slow() -> None:
        go_on.wait(0.1)

    @harbor.task
    def urgent() -> None:
        urgent_ran.set()

    quick.enqueue_many([{}] * 3_000)
    slow.using(priority=-1).enqueue_many([{}] * 400)
    worker = start({"default": 2}, poll_interval_s=0.05)
    until(lambda: harbor.driver.counts()["done"] > 3_000)
    until(lambda: worker._lanes[0].held() < 100, "most of them go back")
    urgent.using(priority=9).enqueue()
    assert urgent_ran.wait(10), "what is urgent does not stand behind hundreds of others"
    go_on.set()


def test_a_job_that_came_in_before_anybody_listened_is_not_waited_for(url: str) -> None:
    harbor, wrapped = wrapped_harbor(url)
    ran, looked, door = threading.Event(), threading.Event(), threading.Event()
    claim, listen = wrapped.driver.settle_and_reserve, wrapped.driver.listen

    @harbor.task
    def long() -> None:
        pause(door)

    @harbor.task
    def work() -> None:
        ran.set()

    def told(*args: Any, **kwargs: Any) -> Any:
        found = claim(*args, **kwargs)
        if found[1]:
            looked.set()
        return found

    def late(queues: Any) -> Any:
        assert looked.wait(10)
        until(lambda: worker._lanes[0].held() == 1)
        work.enqueue()
        return listen(queues)

    wrapped.instead.update(settle_and_reserve=told, listen=late)
    long.enqueue()
    worker = harbor.worker(fleet=False, poll_interval_s=600)
    worker.start()
    assert ran.wait(3)  # and not when it is time to look again
    door.set()
    worker.stop()


def test_jobs_that_come_in_while_the_worker_stops_go_back(url: str) -> None:
    harbor, wrapped = wrapped_harbor(url)
    asked, answer = threading.Event(), threading.Event()
    real = wrapped.driver.settle_and_reserve

    def slow(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if found[1]:
            asked.set()
            pause(answer)
        return found

    wrapped.instead["settle_and_reserve"] = slow

    @harbor.task
    def work() -> None: ...

    jobs = [work.enqueue() for _ in range(3)]
    worker = harbor.worker(fleet=False)
    worker.start()
    pause(asked)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: all(claimer._closing for claimer in worker._claimers))
    answer.set()
    stopping.join(20)
    assert [harbor.job(job).state for job in jobs] == ["ready"] * 3
    assert [harbor.job(job).attempts for job in jobs] == [()] * 3
    harbor.close()


def test_what_a_failing_driver_was_not_told_is_told_again(url: str) -> None:
    harbor, wrapped = wrapped_harbor(url)
    real = wrapped.driver.settle_and_reserve
    failed: list[int] = []

    def fail_once(words: Any, *args: Any, **kwargs: Any) -> Any:
        if words and not failed:
            failed.append(1)
            raise RuntimeError("a fault in the driver")
        return real(words, *args, **kwargs)

    wrapped.instead["settle_and_reserve"] = fail_once
    ran: list[int] = []

    @harbor.task
    def work() -> None:
        ran.append(1)

    job = work.enqueue()
    assert harbor.worker(fleet=False).drain().done == 1
    assert (ran, outcomes(harbor.job(job))) == ([1], ["succeeded"])
    harbor.close()


def test_an_idle_worker_with_the_smallest_batch_asks_no_more_than_any_other(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbor, wrapped = wrapped_harbor(url)
    monkeypatch.setattr(type(wrapped.driver), "writes_in_parallel", True)
    asked = counted(wrapped, "settle_and_reserve")

    @harbor.task
    def work() -> None: ...

    worker = harbor.worker(fleet=False, batch=1, poll_interval_s=0.2)
    worker.start()
    finished(harbor, *[work.enqueue() for _ in range(20)])
    until(lambda: worker._claimers[0].dry)
    before, polls = len(asked), worker._claimers[0].looks
    until(lambda: worker._claimers[0].looks >= polls + 3)
    assert len(asked) - before <= 12
    worker.stop()
    harbor.close()


def test_a_suspect_does_not_wait_for_ever_for_what_ran_before_it(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "PATIENCE_S", 0.2)
    go_on = threading.Event()

    @harbor.task
    def long() -> None:
        pause(go_on)

    @harbor.task(queue="b")
    def suspect() -> None: ...

    @harbor.task(queue="c")
    def other() -> None: ...

    first, suspects = long.enqueue(), suspicious(harbor, "suspect", queue="b")
    harbor.driver.pause("b")
    worker = start({"default": 2, "b": 2, "c": 2}, poll_interval_s=0.05)
    until(lambda: worker._lanes[0].running)
    harbor.driver.resume("b")
    jobs = [*suspects, other.enqueue()]
    assert {view.state for view in finished(harbor, *jobs)} == {"done"}
    go_on.set()
    assert finished(harbor, first)[0].state == "done"


def test_suspects_that_take_too_long_let_others_have_a_turn(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "LONGEST_S", 0.1)
    go_on = threading.Event()

    @harbor.task(queue="b")
    def suspect() -> None:
        pause(go_on)

    @harbor.task(queue="c")
    def other() -> None: ...

    suspects = suspicious(harbor, "suspect", 2, queue="b")
    start({"b": 2, "c": 2}, poll_interval_s=0.05)
    until(lambda: "scheduled" in [harbor.job(job).state for job in suspects], "one of them is put off")
    assert finished(harbor, other.enqueue())[0].state == "done"
    go_on.set()


def test_a_job_that_comes_alone_runs_where_it_was_claimed_and_others_are_claimed_meanwhile(
    harbor: Harbor, start: Start
) -> None:
    """That saves the time in which another thread wakes up."""
    door = threading.Event()
    ran: list[str] = []

    @harbor.task
    def quick() -> None:
        ran.append(threading.current_thread().name)

    @harbor.task
    def long() -> None:
        ran.append(threading.current_thread().name)
        pause(door)

    worker = start({"default": 2}, poll_interval_s=0.05)
    until(lambda: worker._claimers[0].dry)
    finished(harbor, quick.enqueue())  # there has to be a second thread first
    waits = long.enqueue()
    until(lambda: len(ran) == 2)
    assert "claim" in ran[1]
    finished(harbor, *(quick.enqueue() for _ in range(3)))
    assert not any("claim" in name for name in ran[2:]), "one of the two goes on to claim"
    door.set()
    finished(harbor, waits)
    until(lambda: not worker._claimers[0]._turns.at_work)
    finished(harbor, quick.enqueue())
    assert "claim" in ran[-1]
    assert len(worker._claimers[0]._turns._threads) == 2


def test_a_handler_that_never_ends_does_not_keep_its_claimer(harbor: Harbor, start: Start, unheeded: None) -> None:
    door = threading.Event()
    ran: list[str] = []

    @harbor.task
    def quick() -> None:
        ran.append(threading.current_thread().name)

    @harbor.task(timeout=0.1, max_attempts=1)
    def endless() -> None:
        ran.append(threading.current_thread().name)
        pause(door)

    worker = start({"default": 2}, poll_interval_s=0.05, lease_s=0.5)
    until(lambda: worker._claimers[0].dry)
    finished(harbor, quick.enqueue())
    endless.enqueue()
    until(lambda: len(ran) == 2)
    assert "claim" in ran[1]
    finished(harbor, *(quick.enqueue() for _ in range(5)))
    worker.hurry()
    worker.stop()
    assert worker._claimers[0]._turns.over.is_set(), "the worker ends without the thread of that handler"
    door.set()


def test_an_exit_thrown_into_a_claimer_leaves_its_queue_served(harbor: Harbor, start: Start) -> None:
    ran: list[str] = []

    @harbor.task(max_attempts=1)
    def quits() -> None:
        ran.append(threading.current_thread().name)
        raise SystemExit

    worker = start({"default": 2}, poll_interval_s=0.05)
    for _ in range(5):
        until(lambda: worker._claimers[0].dry)
        [job] = finished(harbor, quits.enqueue())
        assert job.status == "dlq"
    assert any("claim" in name for name in ran)
    assert all(thread.is_alive() for thread in worker._claimers[0]._turns._threads)


class Late(BaseException):
    """Thrown into a thread when what it was meant for has ended."""


def test_an_exception_that_comes_too_late_leaves_both_claimers_alive(harbor: Harbor, start: Start) -> None:
    door = threading.Event()
    ran: list[threading.Thread] = []

    @harbor.task
    def quick() -> None:
        ran.append(threading.current_thread())

    @harbor.task
    def long() -> None:
        ran.append(threading.current_thread())
        pause(door)

    worker = start({"default": 2}, poll_interval_s=0.05)
    claimer = worker._claimers[0]

    until(lambda: claimer.dry)
    finished(harbor, quick.enqueue())  # there has to be a second thread first
    until(lambda: claimer.dry and not claimer._turns.at_work)
    finished(harbor, quick.enqueue())
    struck = ran[-1]
    assert "claim" in struck.name
    until(lambda: claimer.dry and not claimer._turns.at_work)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(struck.ident or 0), ctypes.py_object(Late))
    waits = long.enqueue()  # the other one leaves with it, and the one that was struck is to serve
    until(lambda: ran[-1] is not struck)
    finished(harbor, *(quick.enqueue() for _ in range(3)))
    assert all(thread.is_alive() for thread in claimer._turns._threads)
    door.set()
    finished(harbor, waits)
