"""The store goes away and comes back: the worker says so once and goes on; nothing is lost or settled twice."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.crew import Wrapped, final_rows, finished, outcomes, pause, wrapped_harbor

from taskharbor import Backoff, Context, Harbor, StoreUnavailable
from taskharbor.worker.runtime import Worker

TALKING = ("settle", "settle_and_reserve", "reserve", "extend", "heartbeat", "elect", "recover", "schedules")


class Away:
    """The store is away while `gone` is set."""

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self.refused = 0

    def leave(self, *names: str) -> None:
        def refuse(*_: object, **__: object) -> Any:
            self.refused += 1
            raise StoreUnavailable("connection refused")

        self._wrapped.instead = dict.fromkeys(names or TALKING, refuse)

    def come_back(self) -> None:
        self._wrapped.instead = {}


@pytest.fixture
def store(url: str) -> Iterator[tuple[Harbor, Away, Wrapped]]:
    harbor, wrapped = wrapped_harbor(url, retry=Backoff(base=0))
    yield harbor, Away(wrapped), wrapped
    wrapped.instead = {}
    wrapped.driver.close()


Starting = Callable[..., Worker]


@pytest.fixture
def begin() -> Iterator[Starting]:
    started: list[Worker] = []

    def make(harbor: Harbor, **options: Any) -> Worker:
        worker = harbor.worker(**{"fleet": False, **options})
        started.append(worker)
        worker.start()
        return worker

    yield make
    for worker in started:
        worker.hurry()
        worker.stop()


def test_an_outage_is_said_once_and_survived(
    store: tuple[Harbor, Away, Wrapped], begin: Starting, caplog: pytest.LogCaptureFixture
) -> None:
    harbor, away, wrapped = store
    door = threading.Event()
    ran: list[int] = []

    @harbor.task
    def work(number: int) -> int:
        if number < 4:
            pause(door)
        ran.append(number)
        return number

    jobs = [work.enqueue(number) for number in range(4)]
    worker = begin(harbor, concurrency=4, lease_s=30, poll_interval_s=0.05)
    until(lambda: worker._crew.registry.snapshot() and len(worker._lanes[0].running) == 4)
    with caplog.at_level(logging.INFO, "taskharbor"):
        away.leave()
        door.set()
        until(lambda: away.refused >= 3, "the worker tries again")
        away.come_back()
        jobs += [work.enqueue(number) for number in range(4, 20)]
        views = finished(harbor, *jobs)
        until(lambda: "the store is back" in caplog.text)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("the store cannot be used" in message for message in messages) == 1
    assert sum("the store is back" in message for message in messages) == 1
    assert sorted(ran) == list(range(20)), "everything ran once"
    assert [outcomes(view) for view in views] == [["succeeded"]] * 20
    assert final_rows(wrapped.driver) == {job.id: 1 for job in jobs}
    assert (worker.tally.done, worker.tally.lost) == (20, 0)


def test_an_answer_that_got_lost_settles_nothing_twice(store: tuple[Harbor, Away, Wrapped], begin: Starting) -> None:
    harbor, _, wrapped = store
    ran: list[int] = []

    @harbor.task(max_attempts=2)
    def work(number: int, context: Context) -> int:
        ran.append(number)
        if number == 3 and context.attempt == 1:
            raise ValueError
        return number

    jobs = [work.enqueue(number) for number in range(6)]
    lost = []

    def settle_and_fail(settlements: Any, *args: Any, **options: Any) -> Any:
        answer = wrapped.driver.settle_and_reserve(settlements, *args, **options)
        if settlements and not lost and not answer[1]:
            lost.append(len(settlements))
            raise StoreUnavailable("the answer did not arrive")
        return answer

    wrapped.instead = {"settle_and_reserve": settle_and_fail}
    begin(harbor, lease_s=30, poll_interval_s=0.05)
    views = finished(harbor, *jobs)
    until(lambda: lost, "an answer gets lost, or the test proves nothing")
    assert {view.state for view in views} == {"done"}
    assert sorted(ran) == [0, 1, 2, 3, 3, 4, 5]
    assert final_rows(wrapped.driver) == {job.id: 1 for job in jobs}


def test_when_the_outage_is_longer_than_the_lease_the_handler_is_stopped_and_the_job_runs_again(
    store: tuple[Harbor, Away, Wrapped], begin: Starting, caplog: pytest.LogCaptureFixture
) -> None:
    harbor, away, wrapped = store

    @harbor.task
    def work(context: Context) -> str:
        if context.fence == 1:
            until(lambda: context.cancelled)
            return "too late"
        return "again"

    job = work.enqueue()
    worker = begin(harbor, lease_s=0.4, poll_interval_s=0.05)
    until(lambda: harbor.job(job).state == "claimed" or worker._lanes[0].running)
    away.leave()
    until(lambda: worker.tally.lost == 1, "the lease runs out by the worker's own clock")
    away.come_back()
    [view] = finished(harbor, job)
    assert (view.result, outcomes(view)) == ("again", ["lapsed", "succeeded"])
    assert final_rows(wrapped.driver) == {job.id: 1}
    assert "the lease ran out" in caplog.text


def test_jobs_that_waited_out_their_lease_in_an_outage_are_not_begun_and_not_taken_for_done_twice(
    store: tuple[Harbor, Away, Wrapped], begin: Starting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "taskharbor")
    harbor, away, _ = store
    door, blocked = threading.Event(), threading.Event()
    ran: list[int] = []

    @harbor.task
    def quick(number: int) -> None:
        ran.append(number)

    @harbor.task
    def block() -> None:
        blocked.set()
        pause(door)

    quick.enqueue_many({"number": number} for number in range(300))
    block.enqueue()
    behind = [quick.enqueue(number) for number in range(1_000, 1_020)]
    worker = begin(harbor, concurrency=1, lease_s=1.0, poll_interval_s=0.05)
    assert blocked.wait(20)
    lane = worker._lanes[0]
    assert lane.ready, "nothing was fetched ahead: the test proves nothing"
    away.leave()
    until(lambda: all(held.lost for held in list(lane.ready)), "their leases end")
    door.set()
    until(lambda: not lane.ready and not lane.running)
    assert [number for number in ran if number >= 1_000] == [], "somebody else may have them by now"
    assert worker.tally.unbegun >= len(behind)
    assert caplog.text.count("the lease ran out") == 1, "that of the handler which ran"
    assert "before a handler began here" in caplog.text
    away.come_back()
    finished(harbor, *behind)
    assert sorted(number for number in ran if number >= 1_000) == list(range(1_000, 1_020))


HOLDS_THE_FILE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE th_jobs SET priority = priority")
print("in the midst of it", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_a_process_that_is_frozen_in_mid_write_locks_a_sqlite_file_and_workers_go_on_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: signal.Signals
) -> None:
    path = tmp_path / "jobs.db"
    with Harbor(f"sqlite:///{path}?busy_timeout=1") as harbor:

        @harbor.task
        def work() -> str:
            return "done"

        first, second = work.enqueue(), work.using(queue="other").enqueue()
        frozen = subprocess.Popen(
            [sys.executable, "-c", HOLDS_THE_FILE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert frozen.stdin is not None
        assert frozen.stdout is not None
        try:
            frozen.stdout.readline()
            frozen.send_signal(signal.SIGSTOP)
            with pytest.raises(StoreUnavailable, match="a process that was stopped"):
                work.enqueue()
            worker = harbor.worker(["default", "other"], lease_s=5)
            running = threading.Thread(target=worker.run)
            running.start()
            until(lambda: "the store cannot be used" in caplog.text)
            assert [harbor.job(job).state for job in (first, second)] == ["ready", "ready"], "it can still be read"
            frozen.send_signal(end)
            frozen.stdin.close()
            assert [view.result for view in finished(harbor, first, second)] == ["done", "done"]
            until(lambda: "the store is back" in caplog.text)
            worker._stopping.set()
            running.join(30)
            assert not running.is_alive()
        finally:
            frozen.kill()
            frozen.wait()
            frozen.stdout.close()
    messages = [record.getMessage() for record in caplog.records]
    assert sum("the store cannot be used" in message for message in messages) == 1


def test_a_worker_can_stop_while_the_store_is_away(
    store: tuple[Harbor, Away, Wrapped], begin: Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskharbor.worker.farewell.LAST_WORDS_S", 0.5)
    harbor, away, _ = store
    begun = threading.Event()

    @harbor.task
    def work(context: Context) -> None:
        begun.set()
        until(lambda: context.cancelled)

    work.using(queue="a").enqueue()
    work.using(queue="b").enqueue()
    worker = begin(harbor, queues=["a", "b", "c"], grace_s=0, lease_s=30, fleet=True)
    assert begun.wait(10)
    away.leave(*TALKING, "deregister", "resign")
    began, used = time.monotonic(), time.process_time()
    worker.stop()
    assert time.monotonic() - began < 10
    assert time.process_time() - used < 1, "it waits, and does not try without a pause"
    until(lambda: all(claimer._turns.over.is_set() for claimer in worker._claimers))
