"""Workers under limits: what runs at once, what starts in a second, and how soon a change is known."""

from __future__ import annotations

import threading
import time
from collections import Counter

from tests.waiting import until
from tests.worker.conftest import Start

from taskharbor import Harbor


def test_workers_never_run_more_at_once_than_a_limit_allows(harbor: Harbor, start: Start) -> None:
    lock = threading.Lock()
    running: Counter[str] = Counter()
    highest: Counter[str] = Counter()

    @harbor.task(limit_key="{account}")
    def sync(account: str) -> None:
        with lock:
            running[account] += 1
            highest[account] = max(highest[account], running[account])
            highest["all"] = max(highest["all"], running.total())
        time.sleep(0.005)
        with lock:
            running[account] -= 1

    harbor.limit(type=sync, concurrency=3)
    harbor.limit(queue="default", per="key", concurrency=1)
    sync.enqueue_many([{"account": f"a{number % 5}"} for number in range(60)])
    for _ in range(2):
        start({"default": 8}, poll_interval_s=0.05)
    until(lambda: harbor.driver.counts()["done"] == 60)
    assert highest.pop("all") <= 3
    assert set(highest.values()) == {1}


def test_a_worker_under_a_limit_fetches_nothing_ahead(harbor: Harbor, start: Start) -> None:
    @harbor.task
    def quick() -> None: ...

    harbor.limit(queue="default", concurrency=50)
    quick.enqueue_many([{}] * 500)
    worker = start({"default": 2}, poll_interval_s=0.05)
    most = 0
    while harbor.driver.counts()["done"] < 500:
        most = max(most, worker._lanes[0].held())
    assert most <= 2


def test_a_rate_is_kept_to_without_waiting_for_the_next_poll(harbor: Harbor, start: Start) -> None:
    starts: list[float] = []

    @harbor.task
    def tick() -> None:
        starts.append(time.monotonic())

    harbor.limit(queue="default", rate=20, burst=1)
    tick.enqueue_many([{}] * 21)
    start({"default": 4}, poll_interval_s=30)
    until(lambda: len(starts) == 21)
    assert 0.95 <= starts[-1] - starts[0] <= 3.0, "twenty in a second behind the first"


def test_a_limit_set_while_workers_run_is_in_force_within_a_second(harbor: Harbor, start: Start) -> None:
    lock = threading.Lock()
    running = [0]
    late: list[int] = []
    limited_at: list[float] = []

    @harbor.task
    def work() -> None:
        with lock:
            running[0] += 1
            if limited_at and time.monotonic() > limited_at[0] + 1.0:
                late.append(running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1

    work.enqueue_many([{}] * 400)
    start({"default": 8}, poll_interval_s=0.05)
    until(lambda: harbor.driver.counts()["done"] > 20)
    harbor.set_limit(queue="default", concurrency=2)
    limited_at.append(time.monotonic())
    until(lambda: len(late) > 20)
    assert max(late) <= 2
    harbor.lift_limit(queue="default")
    until(lambda: harbor.driver.counts()["done"] == 400)


def test_draining_waits_for_the_tokens_of_a_rate(harbor: Harbor) -> None:
    @harbor.task
    def tick() -> None: ...

    harbor.limit(queue="default", rate=20, burst=1)
    tick.enqueue_many([{}] * 5)
    harbor.worker("default").drain()
    assert harbor.driver.counts()["done"] == 5
