"""One worker of the fleet does the duties for all, and nothing breaks when two believe they do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.waiting import until
from tests.worker.conftest import Opener

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, StoreUnavailable
from taskharbor.core.fleet import Recovery, Worker
from taskharbor.core.model import Schedule, Status
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import done_job, everything, in_threads, leased_job, take_all
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON, SECOND, FakeClock
from taskharbor.worker.keeping import Vouched
from taskharbor.worker.leader import BID_S, LOOK_S, PRUNE_PAUSE_S, PRUNE_S, RECOVER_PASSES, Leader
from taskharbor.worker.scheduler import register


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Troubled:
    """A driver whose operations can be made to fail, or to do something else, and that counts the calls."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.broken: set[str] = set()
        self.instead: dict[str, Callable[..., Any]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name != "departure":  # a look at whether the store was moved, before each bid: no duty
            self.calls.append(name)
        if name in self.broken:
            return self._gone
        return self.instead.get(name) or getattr(self._driver, name)

    @staticmethod
    def _gone(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")


def leader(driver: Any, clock: FakeClock, holder: str = "w1", **options: Any) -> Leader:
    return Leader(driver, holder, monotonic=clock.monotonic, **options)


def every_second(driver: Driver, name: str = "pulse") -> None:
    register(driver, [Schedule(name, "@every 1s", "pulse.beat", overlap="allow")], NOON)


def holders(driver: Driver) -> list[tuple[str, int]]:
    return [(found.holder, found.epoch) for found in driver.leaders()]


# --- Leading -----------------------------------------------------------------------------------------------


def test_the_first_leads_and_the_second_waits(driver: Driver, clock: FakeClock) -> None:
    first, second = leader(driver, clock), leader(driver, clock, "w2")
    first.step(clock.now())
    assert second.step(clock.now()) == BID_S
    assert (first.leading, second.leading) == (True, False)
    assert holders(driver) == [("w1", 1)]


def test_a_leader_renews_its_term_and_keeps_its_epoch(driver: Driver, clock: FakeClock) -> None:
    first, second = leader(driver, clock), leader(driver, clock, "w2")
    for _ in range(120):
        first.step(clock.now())
        second.step(clock.now())
        assert first.leading
        assert not second.leading
        clock.advance(1)
    assert holders(driver) == [("w1", 1)]


def test_a_term_is_renewed_every_ten_seconds_and_not_more_often(driver: Driver, clock: FakeClock) -> None:
    counted = Troubled(driver)
    first = leader(counted, clock)
    for _ in range(60):
        first.step(clock.now())
        clock.advance(1)
    assert counted.calls.count("elect") == 6


def test_another_takes_over_when_the_leader_falls_silent(driver: Driver, clock: FakeClock) -> None:
    first, second = leader(driver, clock), leader(driver, clock, "w2")
    first.step(clock.now())
    clock.advance(31)
    assert not first.leading, "its own clock tells it, without asking"
    second.step(clock.now())
    first.step(clock.now())
    assert (first.leading, second.leading) == (False, True)
    assert holders(driver) == [("w2", 2)]


def test_a_leader_stops_acting_before_its_term_ends_in_the_store(driver: Driver, clock: FakeClock) -> None:
    first = leader(driver, clock)
    first.step(clock.now())
    clock.advance(27)
    assert not first.leading


def test_a_failed_election_means_stepping_down_at_once(
    driver: Driver, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    troubled = Troubled(driver)
    first = leader(troubled, clock)
    first.step(clock.now())
    clock.advance(10)
    troubled.broken.add("elect")
    troubled.calls.clear()
    for _ in range(5):
        first.step(clock.now())
        assert not first.leading
        clock.advance(1)
    assert set(troubled.calls) == {"elect"}, "no duty is done meanwhile"
    assert caplog.text.count("the store is away") == 1
    troubled.broken.clear()
    first.step(clock.now())
    assert first.leading


def test_a_leader_that_lost_its_term_to_another_does_no_duty(driver: Driver, clock: FakeClock) -> None:
    watched = Troubled(driver)
    first = leader(watched, clock)
    first.step(clock.now())
    driver.resign("fleet", "w1", 1)
    assert driver.elect("fleet", "w2", clock.now()) is not None
    clock.advance(10)
    watched.calls.clear()
    first.step(clock.now())
    assert watched.calls == ["elect"]
    assert not first.leading


def test_stop_resigns_so_that_the_next_one_leads_at_once(driver: Driver, clock: FakeClock) -> None:
    first, second = leader(driver, clock), leader(driver, clock, "w2")
    first.step(clock.now())
    first.stop()
    first.stop()
    assert not first.leading
    second.step(clock.now())
    assert second.leading
    first.step(clock.now())
    assert not first.leading, "a stopped one does not bid again"


def test_stop_works_before_start_and_when_the_store_is_away(driver: Driver, clock: FakeClock) -> None:
    leader(driver, clock).stop()
    troubled = Troubled(driver)
    first = leader(troubled, clock)
    first.step(clock.now())
    troubled.broken.add("resign")
    first.stop()
    assert not first.leading


@pytest.mark.parametrize("options", [{"renew_s": 0}, {"renew_s": 29}, {"retention": -SECOND}])
def test_terms_and_retention_that_make_no_sense_are_refused(clock: FakeClock, options: dict[str, Any]) -> None:
    with open_driver("memory://") as driver, pytest.raises(InvalidInput):
        leader(driver, clock, **options)


# --- Schedules ---------------------------------------------------------------------------------------------


def test_a_leader_comes_back_for_the_next_tick_and_within_a_second_at_the_latest(
    driver: Driver, clock: FakeClock
) -> None:
    first = leader(driver, clock)
    assert first.step(clock.now()) == LOOK_S
    clock.advance(0.75)
    every_second(driver)
    assert first.step(clock.now()) == pytest.approx(0.25)


def test_a_schedule_of_every_second_ticks_every_second(driver: Driver, clock: FakeClock) -> None:
    every_second(driver)
    first = leader(driver, clock)
    while clock.now() < NOON + MINUTE:
        clock.advance(first.step(clock.now()))
    first.step(clock.now())
    assert len(everything(driver)) == 60


def test_a_schedule_added_or_resumed_meanwhile_is_noticed_within_a_second(driver: Driver, clock: FakeClock) -> None:
    first = leader(driver, clock)
    clock.advance(first.step(clock.now()))
    every_second(driver)
    driver.pause_schedule("pulse", paused=True)
    clock.advance(first.step(clock.now()))
    assert len(everything(driver)) == 0
    driver.pause_schedule("pulse", paused=False)
    for _ in range(2):
        clock.advance(first.step(clock.now()))
    first.step(clock.now())
    assert len(everything(driver)) >= 1


def test_two_that_both_believe_they_lead_enqueue_each_tick_once(reopen: Opener, clock: FakeClock) -> None:
    driver = reopen()
    every_second(driver)
    # Elections with names of their own: each of them wins its own.
    leaders = [leader(reopen(), clock, f"w{number}", name=f"fleet-{number}") for number in range(3)]
    for _ in range(20):
        clock.advance(1)
        for each in leaders:
            each.step(clock.now())
            assert each.leading
    assert len(everything(driver)) == 20


@pytest.mark.concurrency
def test_twenty_that_all_believe_they_lead_enqueue_each_tick_once(reopen: Opener, clock: FakeClock) -> None:
    driver = reopen()
    every_second(driver)
    leaders = [leader(reopen(), clock, f"w{number}", name=f"fleet-{number}") for number in range(20)]
    for _ in range(5):
        now = clock.advance(1)
        in_threads(20, lambda number, now=now: leaders[number].step(now))  # type: ignore[misc]
    assert sorted(job.meta["tick"][17:19] for job in everything(driver).values()) == ["01", "02", "03", "04", "05"]


def test_the_schedules_stop_when_the_term_runs_out_in_the_middle_of_a_pass(driver: Driver, clock: FakeClock) -> None:
    for name in ("a", "b", "c"):
        every_second(driver, name)
    slow = Troubled(driver)

    def enqueue(*arguments: Any, **options: Any) -> Any:
        clock.advance(28)
        return driver.enqueue(*arguments, **options)

    slow.instead["enqueue"] = enqueue
    clock.advance(1)
    leader(slow, clock).step(clock.now())
    assert len(everything(driver)) == 1


# --- Recovery ----------------------------------------------------------------------------------------------


def test_a_dead_worker_is_removed_and_its_job_runs_again(
    driver: Driver, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    driver.heartbeat(Worker("worker-1"), now=NOON)
    leased = leased_job(driver, lease_for=HOUR)
    first = leader(driver, clock)
    first.step(clock.now())
    assert driver.get(leased.job.id).status is Status.INFLIGHT
    for _ in range(40):
        first.step(clock.advance(1))
    assert list(driver.workers()) == []
    assert driver.get(leased.job.id).status is Status.READY
    assert "1 dead worker removed, 1 lease freed" in caplog.messages


def test_recovery_is_repeated_while_it_finds_something_but_not_for_ever(driver: Driver, clock: FakeClock) -> None:
    endless = Troubled(driver)
    endless.instead["recover"] = lambda *_, **__: Recovery(leases_freed=1)
    first = leader(endless, clock)
    assert first.step(clock.now()) == 0.0, "it wants to go on"
    assert endless.calls.count("recover") == RECOVER_PASSES
    endless.instead["recover"] = lambda *_, **__: Recovery()
    endless.calls.clear()
    first.step(clock.now())
    first.step(clock.now())
    assert endless.calls.count("recover") == 1


# --- Pruning -----------------------------------------------------------------------------------------------


def finished(driver: Driver, *ages: timedelta) -> list[str]:
    return [done_job(driver, now=NOON - age) for age in ages]


def test_without_a_retention_everything_is_kept(driver: Driver, clock: FakeClock) -> None:
    finished(driver, 400 * DAY)
    leader(driver, clock).step(clock.now())
    assert len(everything(driver)) == 1


def test_jobs_that_ended_before_the_retention_are_pruned(driver: Driver, clock: FakeClock) -> None:
    _, young = finished(driver, 8 * DAY, 6 * DAY)
    leader(driver, clock, retention=7 * DAY).step(clock.now())
    assert list(everything(driver)) == [young]


@pytest.mark.parametrize(
    ("archived", "left"), [(None, 3), (NOON - 20 * DAY, 2), (NOON - 8 * DAY, 1), (NOON, 1), (NOON + DAY, 1)]
)
def test_what_is_not_archived_is_never_pruned(
    driver: Driver, clock: FakeClock, archived: datetime | None, left: int
) -> None:
    finished(driver, 30 * DAY, 10 * DAY, DAY)
    vouched = None if archived is None else Vouched(archived, driver.history().cursor)
    leader(driver, clock, retention=7 * DAY, vouched=lambda: vouched).step(clock.now())
    assert len(everything(driver)) == left


def test_what_came_in_behind_the_archive_is_never_pruned_however_long_ago_it_ended(
    driver: Driver, clock: FakeClock
) -> None:
    finished(driver, 20 * DAY)
    vouched = Vouched(NOON, driver.history().cursor)
    [late] = finished(driver, 30 * DAY)
    leader(driver, clock, retention=7 * DAY, vouched=lambda: vouched).step(clock.now())
    assert list(everything(driver)) == [late]


def test_nothing_is_pruned_while_it_cannot_be_known_what_is_archived(
    driver: Driver, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown() -> Vouched:
        raise OSError("the lake cannot be read")

    finished(driver, 30 * DAY)
    every_second(driver)
    first = leader(driver, clock, retention=DAY, vouched=unknown)
    for _ in range(200):
        first.step(clock.advance(1))
    assert len(everything(driver)) == 201, "the schedule went on, and the old job is there"
    assert caplog.text.count("the lake cannot be read") == 1


def test_pruning_goes_in_bites_with_pauses(driver: Driver, clock: FakeClock) -> None:
    finished(driver, *[DAY] * 5)
    counted = Troubled(driver)
    first = leader(counted, clock, retention=HOUR, prune_bite=2)
    assert first.step(clock.now()) == pytest.approx(PRUNE_PAUSE_S)
    assert len(everything(driver)) == 3
    first.step(clock.now())
    assert len(everything(driver)) == 3, "not before the pause is over"
    clock.advance(PRUNE_PAUSE_S)
    first.step(clock.now())
    clock.advance(PRUNE_PAUSE_S)
    first.step(clock.now())
    assert len(everything(driver)) == 0
    assert counted.calls.count("prune") == 3
    while clock.monotonic() < PRUNE_S:
        first.step(clock.now())
        clock.advance(1)
    assert counted.calls.count("prune") == 3


def test_a_retention_longer_than_time_itself_prunes_nothing(driver: Driver, clock: FakeClock) -> None:
    finished(driver, 400 * DAY)
    leader(driver, clock, retention=timedelta.max).step(clock.now())
    assert len(everything(driver)) == 1


# --- Trouble -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["recover", "schedules", "prune"])
def test_a_duty_that_fails_is_reported_once_and_the_others_go_on(
    driver: Driver, clock: FakeClock, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    troubled = Troubled(driver)
    troubled.broken.add(operation)
    first = leader(troubled, clock, retention=DAY)
    with caplog.at_level(logging.INFO, "taskharbor"):
        for _ in range(200):
            first.step(clock.now())
            clock.advance(1)
        assert first.leading
        assert {"recover", "schedules", "prune"} <= set(troubled.calls)
        assert caplog.text.count("the store is away") == 1
        troubled.broken.clear()
        for _ in range(70):
            first.step(clock.now())
            clock.advance(1)
        assert caplog.text.count("working again") == 1
        troubled.broken.add(operation)
        for _ in range(70):
            first.step(clock.now())
            clock.advance(1)
        assert caplog.text.count("the store is away") == 2, "another outage is reported again"


# --- The thread --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_started_it_leads_ticks_and_resigns_when_stopped(driver: Driver) -> None:
    stop = threading.Event()
    first = Leader(driver, "w1", stop=stop)
    first.start()
    first.start()
    until(lambda: first.leading)
    register(driver, [Schedule("pulse", "@every 1s", "pulse.beat", overlap="allow")], driver.now())
    until(lambda: len(everything(driver)) >= 2)
    begun = time.monotonic()
    first.stop()
    assert time.monotonic() - begun < 5, "it does not sleep through a stop"
    assert stop.is_set()
    assert driver.elect("fleet", "w2") is not None
    first.stop()
    # Not that none is left out: a machine may be busy for a second, and then one tick is made up for, not two.
    found = [leased.job.meta["tick"] for leased in take_all(driver, now=driver.now())]
    assert len(set(found)) == len(found) >= 2


@pytest.mark.slow
def test_a_loop_whose_store_fails_in_every_way_still_stops(driver: Driver) -> None:
    troubled = Troubled(driver)
    first = Leader(troubled, "w1")  # type: ignore[arg-type]
    first.start()
    until(lambda: first.leading)
    troubled.broken |= {"now", "elect", "recover", "schedules", "resign"}
    first.stop()
    assert not first.leading
