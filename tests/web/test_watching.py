from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from tests.web.feeding import happen

from taskharbor import NewJob
from taskharbor.core.answers import CensusRow
from taskharbor.core.clock import utc_now
from taskharbor.core.errors import StoreUnavailable
from taskharbor.core.model import Status
from taskharbor.drivers import open_driver
from taskharbor.web.looping import Loop
from taskharbor.web.watching import IDLE_S, IDLE_SHARE, LONGEST_S, QUICK_S, SHARE, Census, standing


class SlowStore:
    """Counts for as long as it is told to, by a clock of its own, and finds one job more each time."""

    def __init__(self, takes_s: float, jobs: int = 1_000_000) -> None:
        self.takes_s = takes_s
        self.jobs = jobs
        self.time = 1_000.0
        self.counted = 0
        self.away = False

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return utc_now()

    def census(self, now: datetime | None = None) -> Sequence[CensusRow]:
        if self.away:
            raise StoreUnavailable("gone for lunch")
        self.counted += 1
        self.time += self.takes_s
        return [CensusRow("default", "default", Status.READY, self.jobs + self.counted)]


def found(census: Census, store: SlowStore) -> int:
    """Which of the counts the census tells of."""
    return census.read().counts["ready"] - store.jobs


def census_of(store: SlowStore) -> Census:
    driver: Any = store
    return Census(driver, monotonic=store.monotonic)


def test_a_small_store_is_counted_anew_for_every_question() -> None:
    store = SlowStore(QUICK_S / 2)
    census = census_of(store)
    assert [found(census, store) for _ in range(3)] == [1, 2, 3]


def test_a_store_with_few_jobs_is_counted_anew_however_slow_the_machine_is() -> None:
    store = SlowStore(0.8, jobs=5_000)
    census = census_of(store)
    assert [found(census, store) for _ in range(3)] == [1, 2, 3]


def test_a_large_store_answers_from_memory() -> None:
    store = SlowStore(0.8)
    census = census_of(store)
    census.refresh()
    before = store.time
    assert [found(census, store) for _ in range(100)] == [1] * 100
    assert store.time == before


def test_counting_a_large_store_takes_a_twentieth_of_the_time_and_less_when_nobody_asks() -> None:
    store = SlowStore(0.8)
    census = census_of(store)
    census.read()
    pause_s = census._turn()
    assert store.takes_s / (store.takes_s + pause_s) == pytest.approx(SHARE)
    store.time += IDLE_S
    pause_s = census._turn()
    assert store.takes_s / (store.takes_s + pause_s) == pytest.approx(IDLE_SHARE)


def test_however_long_a_count_takes_there_is_one_every_five_minutes() -> None:
    store = SlowStore(60.0)
    census = census_of(store)
    census.read()
    assert census._turn() == LONGEST_S


def test_a_store_that_has_grown_is_left_to_the_thread_and_one_that_has_shrunk_is_asked_again() -> None:
    store = SlowStore(QUICK_S / 2)
    census = census_of(store)
    census.read()
    store.takes_s = 1.0
    census.read()
    assert found(census, store) == found(census, store) == 2
    store.takes_s = QUICK_S / 2
    census._turn()
    assert found(census, store) == 4


def test_without_a_thread_an_old_count_is_not_told_for_ever() -> None:
    store = SlowStore(1.0)
    census = census_of(store)
    census.read()
    store.time += LONGEST_S + 10
    assert found(census, store) == 2


def test_questions_that_come_at_once_wait_for_the_same_first_count() -> None:
    store = SlowStore(1.0)
    begun, go_on = threading.Event(), threading.Event()
    count = store.census

    def slowly(now: datetime | None = None) -> Sequence[CensusRow]:
        begun.set()
        assert go_on.wait(20)
        return count(now)

    store.census = slowly  # type: ignore[method-assign]
    census = census_of(store)
    census.start()
    assert begun.wait(20)
    answers: list[int] = []
    askers = [threading.Thread(target=lambda: answers.append(found(census, store))) for _ in range(5)]
    for each in askers:
        each.start()
    go_on.set()
    for each in askers:
        each.join(20)
    census.stop()
    assert answers == [1] * 5


def test_each_tenant_is_told_of_its_own_jobs_alone() -> None:
    driver = open_driver("memory://")
    now = driver.now()
    driver.enqueue([NewJob("t", queue="shared", tenant_id="acme"), NewJob("t", queue="own", tenant_id="acme")], now)
    driver.enqueue([NewJob("t", queue="shared", tenant_id="other", run_at=now.replace(year=now.year + 1))], now)
    happen(driver, "fail", queue="theirs", tenant="other")
    census = Census(driver)
    acme, other, everyone = census.read("acme"), census.read("other"), census.read()
    assert {name: queue.counts["ready"] for name, queue in acme.queues.items()} == {"own": 1, "shared": 1}
    assert list(other.queues) == ["shared", "theirs"]
    assert (other.scheduled, other.queues["shared"].oldest_due) == (1, None)
    assert other.counts["dlq"] == 1
    assert everyone.counts["ready"] == 3
    assert everyone.queues["shared"].oldest_due == now
    assert everyone.tenants["acme"]["ready"] == 2
    assert list(acme.tenants) == ["acme"]
    assert census.read("nobody").total == 0


def test_the_age_of_the_oldest_job_is_never_negative() -> None:
    now = utc_now()
    row = CensusRow("default", "q", Status.READY, 1, 0, now)
    queue = standing([row], now).queues["q"]
    assert queue.oldest_s(now.replace(year=now.year - 1)) == 0


def test_a_thread_can_be_stopped_twice_and_before_it_was_started() -> None:
    driver = open_driver("memory://")
    never = Census(driver)
    never.stop()
    never.stop()
    never.start()
    assert never._loop._thread is None
    census = Census(driver)
    census.start()
    census.start()
    census.stop()
    census.stop()
    assert census._loop._thread is not None
    assert not census._loop._thread.is_alive()


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    store = SlowStore(0.5)
    store.away = True
    census = census_of(store)
    with caplog.at_level(logging.INFO, "taskharbor.web"):
        waits = [census._loop.once() for _ in range(10)]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert 0 < waits[0] < waits[-1] <= 5
        store.away = False
        census._loop.once()
        census._loop.once()
    assert ["cannot be used" in record.message for record in caplog.records] == [True, False]
    assert "goes on after" in caplog.records[-1].message


def test_a_mistake_in_a_step_is_logged_once_with_its_traceback_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps: list[int] = []

    def step() -> float:
        steps.append(1)
        if len(steps) < 4:
            raise ZeroDivisionError("oh")
        return 0.5

    loop = Loop("test", step)
    with caplog.at_level(logging.INFO, "taskharbor.web"):
        waits = [loop.once() for _ in range(4)]
    assert waits[-1] == 0.5
    assert [record.exc_info is not None for record in caplog.records] == [True, False]


def test_a_closed_driver_ends_the_thread_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    driver = open_driver("memory://")
    driver.close()
    census = Census(driver)
    with caplog.at_level(logging.INFO, "taskharbor.web"):
        census._loop.once()
    assert census._loop.stopped
    assert not caplog.records
