"""Schedules become jobs, each tick exactly once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import Opener

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, ScheduleNotFound, StoreUnavailable
from taskharbor.core.model import Job, Schedule, Status
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import everything, in_threads, nothing_runnable, take, take_all
from taskharbor.testing.times import DAY, HOUR, MINUTE, NOON, SECOND
from taskharbor.worker.scheduler import Scheduler, register, resume, run_now, run_schedules, tick_id


def add(driver: Driver, name: str = "report", spec: str = "* * * * *", *, now: datetime = NOON, **fields: Any) -> None:
    register(driver, [Schedule(**{"name": name, "spec": spec, "type": "report.make", **fields})], now)


def jobs(driver: Driver) -> list[Job]:
    return [job for _, job in sorted(everything(driver).items())]


def ticks(driver: Driver, name: str = "report") -> list[str]:
    """The ticks of a schedule that have a job, as a clock shows them."""
    found = [job.meta for job in jobs(driver) if job.meta.get("schedule") == name]
    return sorted(datetime.fromisoformat(meta["tick"]).strftime("%H:%M:%S") for meta in found if "tick" in meta)


def finish_all(driver: Driver, now: datetime) -> None:
    for leased in take_all(driver, now=now):
        driver.ack(leased.job.id, leased.lease.token, now=now)


class Killed(BaseException):
    """What a process that is killed does not catch."""


class Flawed:
    """A driver on which some operations do something else."""

    def __init__(self, driver: Driver, **instead: Callable[..., Any]) -> None:
        self._driver = driver
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._driver, name)


def killed(*_: object, **__: object) -> None:
    raise Killed


def dies_before_advancing(driver: Driver) -> Driver:
    return Flawed(driver, advance_schedule=killed)  # type: ignore[return-value]


# --- Ticks -------------------------------------------------------------------------------------------------


def test_a_tick_is_enqueued_when_it_is_due_and_not_before(driver: Driver) -> None:
    add(driver, payload=b'{"a":1}', queue="night", tenant_id="acme", priority=3, max_attempts=2, timeout=30)
    assert run_schedules(driver, NOON + 59 * SECOND) == 0
    assert run_schedules(driver, NOON + MINUTE) == 1
    [job] = jobs(driver)
    assert (job.type, job.payload, job.queue, job.tenant_id) == ("report.make", b'{"a":1}', "night", "acme")
    assert (job.priority, job.max_attempts, job.timeout) == (3, 2, 30 * SECOND)
    assert job.idempotency_key == "schedule:report:2026-06-01T12:01:00+00:00"
    assert job.meta == {"schedule": "report", "tick": "2026-06-01T12:01:00+00:00"}


def test_a_pass_moves_the_schedule_on_and_remembers_what_it_did(driver: Driver) -> None:
    add(driver)
    run_schedules(driver, NOON + MINUTE + SECOND)
    kept = driver.get_schedule("report")
    assert (kept.next_run_at, kept.last_run_at) == (NOON + 2 * MINUTE, NOON + MINUTE)
    assert kept.last_job_id == jobs(driver)[0].id == tick_id("report", NOON + MINUTE)


def test_a_second_pass_at_the_same_time_finds_nothing_to_do(driver: Driver) -> None:
    add(driver)
    assert [run_schedules(driver, NOON + MINUTE) for _ in range(3)] == [1, 0, 0]


def test_after_a_downtime_only_the_latest_missed_tick_is_made_up_for(driver: Driver) -> None:
    add(driver, overlap="allow")
    later = NOON + DAY + 30 * SECOND
    assert run_schedules(driver, later) == 1
    assert jobs(driver)[0].meta["tick"] == "2026-06-02T12:00:00+00:00"
    assert driver.get_schedule("report").next_run_at == NOON + DAY + MINUTE
    assert run_schedules(driver, later) == 0


def test_two_schedules_of_one_type_and_time_each_get_their_job(driver: Driver) -> None:
    add(driver, "north")
    add(driver, "south")
    assert run_schedules(driver, NOON + MINUTE) == 2
    assert ticks(driver, "north") == ticks(driver, "south") == ["12:01:00"]


@pytest.mark.parametrize("name", ["n" * 255, "é" * 255, "a:b c/d"])
def test_every_name_that_a_schedule_may_have_works(driver: Driver, name: str) -> None:
    add(driver, name)
    add(driver, name[:-1] + "_")
    assert run_schedules(driver, NOON + MINUTE) == 2
    assert run_schedules(driver, NOON + MINUTE) == 0


@pytest.mark.parametrize("spec", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 30 FEB ?"])
def test_a_schedule_that_never_fires_is_refused_where_it_is_defined(driver: Driver, spec: str) -> None:
    with pytest.raises(InvalidInput, match=r"never fires.*correct its day"):
        add(driver, spec=spec)
    with pytest.raises(InvalidInput, match="never fires"):
        driver.put_schedule(Schedule("report", spec, "report.make", timezone="Europe/Paris"), now=NOON)
    assert list(driver.schedules()) == []


def test_one_that_never_fires_and_is_there_all_the_same_is_reported_once(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """Kept by an older version."""
    old = Schedule("report", "0 0 30 2 *", "report.make", updated_at=NOON)
    scheduler = Scheduler(Flawed(driver, schedules=lambda: [old]))  # type: ignore[arg-type]
    assert [scheduler.tick(NOON + days * DAY) for days in (1, 2)] == [0, 0]
    [line] = [record.getMessage() for record in caplog.records if "never fires" in record.getMessage()]
    assert "report" in line


def test_a_schedule_put_without_a_first_tick_is_given_one(driver: Driver) -> None:
    driver.put_schedule(Schedule("report", "* * * * *", "report.make"), now=NOON)
    assert run_schedules(driver, NOON + SECOND) == 0
    assert driver.get_schedule("report").next_run_at == NOON + MINUTE


def test_what_the_user_put_into_meta_stays(driver: Driver) -> None:
    add(driver, meta={"team": "data", "tick": "mine"})
    run_schedules(driver, NOON + MINUTE)
    assert jobs(driver)[0].meta == {"schedule": "report", "team": "data", "tick": "mine"}


def test_the_scheduler_knows_the_next_tick_to_wait_for(driver: Driver) -> None:
    scheduler = Scheduler(driver)
    scheduler.tick(NOON)
    assert scheduler.next_due is None
    add(driver, "hourly", "@hourly")
    add(driver, "soon", "@every 5m")
    scheduler.tick(NOON)
    assert scheduler.next_due == NOON + 5 * MINUTE
    scheduler.tick(NOON + 5 * MINUTE)
    assert scheduler.next_due == NOON + 10 * MINUTE
    driver.pause_schedule("soon", paused=True)
    scheduler.tick(NOON + 6 * MINUTE)
    assert scheduler.next_due == NOON + HOUR


# --- Pausing -----------------------------------------------------------------------------------------------


def test_a_paused_schedule_enqueues_nothing_and_goes_on_when_resumed(driver: Driver) -> None:
    add(driver)
    driver.pause_schedule("report", paused=True)
    assert run_schedules(driver, NOON + MINUTE) == 0
    driver.pause_schedule("report", paused=False)
    assert run_schedules(driver, NOON + 2 * MINUTE) == 1


def test_the_ticks_of_a_pause_are_not_made_up_for(driver: Driver) -> None:
    add(driver)
    driver.pause_schedule("report", paused=True)
    run_schedules(driver, NOON + 10 * MINUTE)
    driver.pause_schedule("report", paused=False)
    assert run_schedules(driver, NOON + 10 * MINUTE + SECOND) == 0
    assert driver.get_schedule("report").next_run_at == NOON + 11 * MINUTE


def test_resuming_passes_over_the_ticks_of_a_pause_that_nobody_watched(driver: Driver) -> None:
    add(driver)
    driver.pause_schedule("report", paused=True)
    resume(driver, "report", NOON + 10 * MINUTE)
    assert run_schedules(driver, NOON + 10 * MINUTE + SECOND) == 0
    assert run_schedules(driver, NOON + 11 * MINUTE) == 1


def test_resuming_what_is_not_paused_loses_no_tick(driver: Driver) -> None:
    add(driver)
    resume(driver, "report", NOON + MINUTE)
    assert run_schedules(driver, NOON + MINUTE) == 1


# --- Overlap -----------------------------------------------------------------------------------------------


def test_a_tick_is_skipped_while_the_last_job_waits_or_runs(driver: Driver) -> None:
    add(driver)
    assert run_schedules(driver, NOON + MINUTE) == 1
    assert run_schedules(driver, NOON + 2 * MINUTE) == 0
    leased = take(driver, now=NOON + 2 * MINUTE, lease_for=HOUR)
    assert run_schedules(driver, NOON + 3 * MINUTE) == 0
    assert driver.get_schedule("report").next_run_at == NOON + 4 * MINUTE
    driver.ack(leased.job.id, leased.lease.token, now=NOON + 3 * MINUTE)
    assert run_schedules(driver, NOON + 4 * MINUTE) == 1
    assert ticks(driver) == ["12:01:00", "12:04:00"]


def test_a_job_that_is_dead_or_gone_does_not_hold_up_the_next_tick(driver: Driver) -> None:
    add(driver)
    run_schedules(driver, NOON + MINUTE)
    leased = take(driver, now=NOON + MINUTE)
    driver.fail(leased.job.id, leased.lease.token, now=NOON + MINUTE, reason="broken")
    assert run_schedules(driver, NOON + 2 * MINUTE) == 1
    finish_all(driver, NOON + 2 * MINUTE)
    driver.prune(NOON + DAY)
    assert run_schedules(driver, NOON + 3 * MINUTE) == 1


def test_with_overlap_allowed_every_tick_gets_its_job(driver: Driver) -> None:
    add(driver, overlap="allow")
    assert [run_schedules(driver, NOON + minute * MINUTE) for minute in (1, 2, 3)] == [1, 1, 1]


def test_a_skipped_tick_is_logged_once_for_each_job_that_is_in_the_way(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    add(driver)
    scheduler = Scheduler(driver)
    with caplog.at_level(logging.INFO, "taskharbor"):
        for minute in range(1, 10):
            scheduler.tick(NOON + minute * MINUTE)
        assert len(caplog.records) == 1
        assert tick_id("report", NOON + MINUTE) in caplog.text
        finish_all(driver, NOON + 10 * MINUTE)
        for minute in range(10, 15):
            scheduler.tick(NOON + minute * MINUTE)
        assert len(caplog.records) == 2


# --- Exactly once ------------------------------------------------------------------------------------------


def test_a_scheduler_killed_between_enqueue_and_advance_leaves_one_job(driver: Driver) -> None:
    add(driver)
    with pytest.raises(Killed):
        run_schedules(dies_before_advancing(driver), NOON + MINUTE)
    assert driver.get_schedule("report").next_run_at == NOON + MINUTE
    assert run_schedules(driver, NOON + MINUTE + SECOND) == 0
    assert ticks(driver) == ["12:01:00"]
    kept = driver.get_schedule("report")
    assert (kept.next_run_at, kept.last_job_id) == (NOON + 2 * MINUTE, tick_id("report", NOON + MINUTE))


def test_a_job_that_was_already_done_is_not_enqueued_again_after_a_kill(driver: Driver) -> None:
    add(driver)
    with pytest.raises(Killed):
        run_schedules(dies_before_advancing(driver), NOON + MINUTE)
    finish_all(driver, NOON + MINUTE)
    assert run_schedules(driver, NOON + MINUTE + SECOND) == 0
    assert nothing_runnable(driver, now=NOON + HOUR)


def test_a_job_left_by_a_kill_counts_as_the_last_one_even_when_its_tick_is_passed_over(driver: Driver) -> None:
    add(driver)
    with pytest.raises(Killed):
        run_schedules(dies_before_advancing(driver), NOON + MINUTE)
    assert run_schedules(driver, NOON + 5 * MINUTE) == 0, "the job of 12:01 is not over"
    assert ticks(driver) == ["12:01:00"]
    finish_all(driver, NOON + 5 * MINUTE)
    assert run_schedules(driver, NOON + 6 * MINUTE) == 1


@pytest.mark.parametrize(
    "change", [{"payload": b"[2]"}, {"type": "other"}, {"queue": "other"}, {"tenant_id": "other"}, {"priority": 9}]
)
def test_a_definition_that_changes_between_two_tries_does_not_make_a_second_job(
    driver: Driver, change: dict[str, Any]
) -> None:
    add(driver)
    with pytest.raises(Killed):
        run_schedules(dies_before_advancing(driver), NOON + MINUTE)
    driver.put_schedule(replace(driver.get_schedule("report"), **change), now=NOON + MINUTE)
    assert run_schedules(driver, NOON + MINUTE + SECOND) == 0
    assert len(jobs(driver)) == 1
    assert driver.get_schedule("report").next_run_at == NOON + 2 * MINUTE


def test_one_who_reads_the_schedule_and_then_sleeps_adds_nothing(driver: Driver) -> None:
    add(driver, overlap="allow")
    stale = list(driver.schedules())
    assert run_schedules(driver, NOON + MINUTE) == 1
    sleeper = Flawed(driver, schedules=lambda: stale)
    assert run_schedules(sleeper, NOON + MINUTE) == 0  # type: ignore[arg-type]
    assert run_schedules(sleeper, NOON + 10 * MINUTE) == 0  # type: ignore[arg-type]
    assert ticks(driver) == ["12:01:00"]
    assert driver.get_schedule("report").next_run_at == NOON + 2 * MINUTE


@pytest.mark.concurrency
def test_twenty_at_once_enqueue_each_tick_once(reopen: Opener) -> None:
    driver = reopen()
    for number in range(5):
        add(driver, f"s{number}", overlap="allow")
    drivers = [reopen() for _ in range(20)]
    for minute in range(1, 6):
        added = in_threads(20, lambda number, now=NOON + minute * MINUTE: run_schedules(drivers[number], now))  # type: ignore[misc]
        assert sum(added) == 5
    assert all(ticks(driver, f"s{number}") == [f"12:0{minute}:00" for minute in range(1, 6)] for number in range(5))


@pytest.mark.concurrency
def test_twenty_whose_clocks_differ_make_up_for_one_tick_and_go_on_without_doubles(reopen: Opener) -> None:
    driver = reopen()
    add(driver, spec="@every 10s", overlap="allow")
    drivers = [reopen() for _ in range(20)]
    added = in_threads(20, lambda number: run_schedules(drivers[number], NOON + HOUR + number * SECOND))
    found = ticks(driver)
    # Their clocks stand on both sides of 13:00:10, so that tick is due for some of them.
    assert found in (["13:00:00"], ["13:00:10"], ["13:00:00", "13:00:10"])
    assert sum(added) == len(found)


@pytest.mark.process
def test_a_process_killed_between_enqueue_and_advance_leaves_one_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store"
    victim = textwrap.dedent(
        f"""
        import os, signal
        from taskharbor.drivers import open_driver
        from taskharbor.testing.times import NOON, MINUTE
        from taskharbor.worker.scheduler import run_schedules
        driver = open_driver({url!r})
        driver.advance_schedule = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
        run_schedules(driver, NOON + MINUTE)
        """
    )
    with open_driver(url) as driver:
        driver.migrate()
        add(driver)
        for _ in range(3):
            done = subprocess.run([sys.executable, "-c", victim], env=dict(os.environ), check=False)
            assert done.returncode == -signal.SIGKILL
        assert run_schedules(driver, NOON + MINUTE) == 0
        assert ticks(driver) == ["12:01:00"]
        assert driver.get_schedule("report").next_run_at == NOON + 2 * MINUTE


# --- Trouble -----------------------------------------------------------------------------------------------


def test_a_schedule_that_cannot_be_read_is_reported_once_and_holds_up_no_other(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Schedule("broken", "* * * * *", "report.make", timezone="Mars/Olympus", next_run_at=NOON)
    driver.put_schedule(broken, now=NOON)
    add(driver)
    scheduler = Scheduler(driver)
    assert scheduler.tick(NOON + MINUTE) == 1
    finish_all(driver, NOON + MINUTE)
    assert scheduler.tick(NOON + 2 * MINUTE) == 1
    assert [record.getMessage() for record in caplog.records if "Mars/Olympus" in record.getMessage()] == [
        caplog.records[0].getMessage()
    ]


def test_a_store_that_is_away_is_an_error_of_the_pass(driver: Driver) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("gone")

    add(driver)
    with pytest.raises(StoreUnavailable):
        run_schedules(Flawed(driver, enqueue=away), NOON + MINUTE)  # type: ignore[arg-type]
    assert run_schedules(driver, NOON + MINUTE) == 1


def test_a_pass_ends_when_it_is_no_longer_permitted(driver: Driver) -> None:
    for name in "abc":
        add(driver, name)
    answers = iter([True, True, False])
    assert Scheduler(driver, permitted=lambda: next(answers)).tick(NOON + MINUTE) == 2


# --- Registering and running by hand -----------------------------------------------------------------------


def test_registering_again_keeps_the_pause_and_the_tick_that_was_missed(driver: Driver) -> None:
    add(driver)
    driver.pause_schedule("report", paused=True)
    add(driver, now=NOON + HOUR)
    kept = driver.get_schedule("report")
    assert (kept.paused, kept.next_run_at) == (True, NOON + MINUTE)


def test_registering_other_times_gives_another_first_tick(driver: Driver) -> None:
    add(driver)
    add(driver, spec="@daily", timezone="Europe/Paris", now=NOON + HOUR)
    assert driver.get_schedule("report").next_run_at == NOON + 10 * HOUR


def test_one_bad_definition_registers_none(driver: Driver) -> None:
    good = Schedule("good", "@daily", "a")
    with pytest.raises(InvalidInput, match="minute"):
        register(driver, {"good": good, "bad": replace(good, name="bad", spec="61 * * * *")}, NOON)
    assert list(driver.schedules()) == []


def test_running_by_hand_adds_a_job_beside_the_ticks_even_in_a_pause(driver: Driver) -> None:
    add(driver, payload=b"[1]")
    driver.pause_schedule("report", paused=True)
    before = driver.get_schedule("report")
    ids = {run_now(driver, "report", NOON + SECOND) for _ in range(2)}
    assert ids == set(everything(driver))
    assert all(job.payload == b"[1]" and job.status is Status.READY for job in jobs(driver))
    assert driver.get_schedule("report") == before


def test_running_by_hand_does_not_skip_the_next_tick(driver: Driver) -> None:
    add(driver)
    run_now(driver, "report", NOON + SECOND)
    assert run_schedules(driver, NOON + MINUTE) == 1


def test_running_an_unknown_schedule_is_an_error(driver: Driver) -> None:
    with pytest.raises(ScheduleNotFound):
        run_now(driver, "nobody", NOON)
