"""Schedules: definitions that are put again and again, and a life that goes on under them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, PayloadTooLarge, ScheduleNotFound
from taskharbor.core.model import Overlap, Schedule
from taskharbor.testing.helpers import add, everything, in_threads
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND

RIVALS = 20
MIB = 1_048_576
KATHMANDU = timezone(timedelta(hours=5, minutes=45))


def hourly(name: str = "report", **fields: Any) -> Schedule:
    """A schedule; whatever the test does not care about is filled in."""
    return Schedule(**{"name": name, "spec": "0 * * * *", "type": "report.send", "next_run_at": NOON, **fields})


def put(driver: Driver, name: str = "report", *, now: datetime = NOON, **fields: Any) -> Schedule:
    return driver.put_schedule(hourly(name, **fields), now=now)


def tick(driver: Driver, **changes: Any) -> Schedule:
    """The schedule after a tick at NOON was enqueued as job "job-1"."""
    put(driver, **changes)
    assert driver.advance_schedule(
        "report", expected=NOON, next_run_at=NOON + HOUR, last_run_at=NOON, last_job_id="job-1", now=NOON
    )
    return driver.get_schedule("report")


class ScheduleContract:
    """`put_schedule`, `schedules`, `get_schedule`, `pause_schedule`, `remove_schedule` and `advance_schedule`."""

    # --- Keeping -----------------------------------------------------------------------------------------

    def test_a_schedule_is_kept_as_it_was_given(self, driver: Driver) -> None:
        given = Schedule(
            name="nightly \N{SNOWMAN}",
            spec="*/5 2-4 * * mon#1",
            type="report.send",
            payload=b"\x00\xff\"'\\",
            timezone="America/Argentina/Buenos_Aires",
            queue="Mail",
            tenant_id="é",
            priority=-7,
            max_attempts=3,
            timeout=timedelta(seconds=1.5),
            meta={"trace": "\N{SNOWMAN}", "": ""},
            overlap="allow",
            paused=True,
            next_run_at=NOON + MICROSECOND,
            last_run_at=NOON - DAY,
            last_job_id="job-\N{SNOWMAN}",
        )
        kept = driver.put_schedule(given, now=NOON)
        assert kept == replace(given, overlap=Overlap.ALLOW, updated_at=NOON)
        assert driver.get_schedule(given.name) == kept
        assert list(driver.schedules()) == [kept]

    def test_a_schedule_has_sensible_defaults(self, driver: Driver) -> None:
        kept = driver.put_schedule(Schedule("report", "@every 1h", "report.send"), now=NOON)
        assert driver.get_schedule("report") == kept
        assert (kept.payload, kept.timezone, kept.queue, kept.tenant_id) == (b"", "UTC", "default", "default")
        assert (kept.priority, kept.max_attempts, kept.timeout, dict(kept.meta)) == (0, None, None, {})
        assert (kept.overlap, kept.paused, kept.next_run_at) == (Overlap.SKIP, False, None)
        assert (kept.last_run_at, kept.last_job_id, kept.updated_at) == (None, None, NOON)

    def test_times_of_any_zone_are_kept_as_that_moment(self, driver: Driver) -> None:
        kept = put(driver, now=NOON.astimezone(KATHMANDU), next_run_at=(NOON + HOUR).astimezone(KATHMANDU))
        assert (kept.next_run_at, kept.updated_at) == (NOON + HOUR, NOON)
        assert kept.next_run_at is not None and kept.next_run_at.utcoffset() == timedelta(0)
        expected = (NOON + HOUR).astimezone(KATHMANDU)
        assert driver.advance_schedule("report", expected=expected, next_run_at=None, now=NOON)

    def test_seconds_of_a_timeout_become_a_timedelta_and_nothing_means_none(self, driver: Driver) -> None:
        assert put(driver, timeout=1.5).timeout == timedelta(seconds=1.5)
        assert put(driver, timeout=0, max_attempts=0).timeout is None
        assert driver.get_schedule("report").max_attempts is None

    def test_schedules_are_shown_in_order_of_name(self, driver: Driver) -> None:
        assert list(driver.schedules()) == []
        for name in ("b", "a", "B", "é", "a "):
            put(driver, name)
        assert [schedule.name for schedule in driver.schedules()] == ["B", "a", "a ", "b", "é"]

    def test_names_of_schedules_are_compared_byte_by_byte(self, driver: Driver) -> None:
        names = ["k", "K", "k ", "ḱ"]
        for number, name in enumerate(names):
            put(driver, name, priority=number)
        assert [driver.get_schedule(name).priority for name in names] == [0, 1, 2, 3]
        assert driver.remove_schedule("K")
        assert [schedule.name for schedule in driver.schedules()] == ["k", "k ", "ḱ"]

    def test_a_payload_of_a_schedule_has_the_limit_of_a_job(self, driver: Driver) -> None:
        payload = bytes(range(256)) * (MIB // 256)
        put(driver, payload=payload)
        assert driver.get_schedule("report").payload == payload
        with pytest.raises(PayloadTooLarge):
            put(driver, payload=payload + b"x")
        assert driver.get_schedule("report").payload == payload

    def test_an_unknown_schedule_is_an_error_of_its_own(self, driver: Driver) -> None:
        put(driver)
        for name in ("nobody", "Report", "report ", ""):
            with pytest.raises(ScheduleNotFound):
                driver.get_schedule(name)
            with pytest.raises(ScheduleNotFound):
                driver.pause_schedule(name, paused=True, now=NOON)
            assert not driver.remove_schedule(name)
            assert not driver.advance_schedule(name, expected=NOON, next_run_at=None, now=NOON)
        assert list(driver.schedules()) == [driver.get_schedule("report")]
        assert not driver.get_schedule("report").paused

    # --- Putting again -----------------------------------------------------------------------------------

    def test_a_put_of_the_same_name_replaces_the_definition(self, driver: Driver) -> None:
        put(driver)
        changed = hourly(
            spec="30 * * * *",
            type="report.print",
            payload=b"2",
            timezone="Europe/Paris",
            queue="paper",
            tenant_id="acme",
            priority=9,
            max_attempts=1,
            timeout=MINUTE,
            meta={"a": "b"},
            overlap=Overlap.ALLOW,
            next_run_at=NOON + 30 * MINUTE,
        )
        kept = driver.put_schedule(changed, now=NOON + SECOND)
        assert kept == replace(changed, updated_at=NOON + SECOND)
        assert list(driver.schedules()) == [kept]

    def test_a_put_can_take_back_what_the_last_one_set(self, driver: Driver) -> None:
        put(driver, payload=b"1", max_attempts=3, timeout=MINUTE, meta={"a": "b"}, priority=1)
        kept = put(driver)
        assert (kept.payload, kept.max_attempts, kept.timeout, dict(kept.meta), kept.priority) == (
            b"",
            None,
            None,
            {},
            0,
        )
        assert driver.get_schedule("report") == kept

    def test_a_pause_survives_a_put(self, driver: Driver) -> None:
        put(driver)
        driver.pause_schedule("report", paused=True, now=NOON)
        assert put(driver, paused=False, spec="30 * * * *").paused
        assert driver.get_schedule("report").paused

    def test_a_put_pauses_no_schedule_that_is_there(self, driver: Driver) -> None:
        put(driver)
        assert not put(driver, paused=True).paused
        assert not driver.get_schedule("report").paused

    def test_the_last_tick_survives_a_put(self, driver: Driver) -> None:
        tick(driver)
        kept = put(driver, spec="30 * * * *", last_run_at=NOON + DAY, last_job_id="another")
        assert (kept.last_run_at, kept.last_job_id) == (NOON, "job-1")
        assert driver.get_schedule("report") == kept

    def test_the_next_tick_survives_a_put_that_leaves_the_times_alone(self, driver: Driver) -> None:
        tick(driver)
        for given in (NOON, NOON + DAY, None):
            kept = put(driver, next_run_at=given, type="report.print", payload=b"2")
            assert kept.next_run_at == NOON + HOUR
        assert driver.get_schedule("report") == kept

    def test_an_end_of_ticks_survives_a_put_that_leaves_the_times_alone(self, driver: Driver) -> None:
        put(driver, next_run_at=None)
        assert put(driver, next_run_at=NOON).next_run_at is None

    @pytest.mark.parametrize("change", [{"spec": "30 * * * *"}, {"timezone": "Europe/Paris"}, {"timezone": "utc"}])
    def test_the_next_tick_is_the_given_one_when_the_times_change(self, driver: Driver, change: dict[str, Any]) -> None:
        tick(driver)
        assert put(driver, next_run_at=NOON + 30 * MINUTE, **change).next_run_at == NOON + 30 * MINUTE
        assert driver.get_schedule("report").next_run_at == NOON + 30 * MINUTE

    def test_the_next_tick_goes_away_when_the_times_change_and_none_is_given(self, driver: Driver) -> None:
        tick(driver)
        assert put(driver, next_run_at=None, spec="0 0 29 2 *").next_run_at is None

    def test_a_schedule_that_never_fires_is_refused(self, driver: Driver) -> None:
        before = put(driver)
        with pytest.raises(InvalidInput, match="never fires"):
            put(driver, spec="0 0 30 2 *", next_run_at=None)
        assert driver.get_schedule("report") == before

    # --- By hand -----------------------------------------------------------------------------------------

    def test_pausing_a_schedule_changes_nothing_else(self, driver: Driver) -> None:
        before = tick(driver)
        for paused in (True, True, False, False):
            driver.pause_schedule("report", paused=paused, now=NOON + MINUTE)
            assert driver.get_schedule("report") == replace(before, paused=paused, updated_at=NOON + MINUTE)

    def test_a_pause_holds_for_its_own_schedule_only(self, driver: Driver) -> None:
        for name in ("report", "Report", "other"):
            put(driver, name)
        driver.pause_schedule("report", paused=True, now=NOON)
        assert [(kept.name, kept.paused) for kept in driver.schedules()] == [
            ("Report", False),
            ("other", False),
            ("report", True),
        ]

    def test_a_removed_schedule_is_gone_and_its_jobs_stay(self, driver: Driver) -> None:
        job_id = add(driver)
        jobs = everything(driver)
        put(driver, last_job_id=job_id)
        assert driver.remove_schedule("report")
        assert not driver.remove_schedule("report")
        assert list(driver.schedules()) == []
        assert everything(driver) == jobs

    def test_a_removed_schedule_that_is_put_again_begins_afresh(self, driver: Driver) -> None:
        tick(driver)
        driver.pause_schedule("report", paused=True, now=NOON)
        driver.remove_schedule("report")
        kept = put(driver, next_run_at=NOON + DAY)
        assert (kept.paused, kept.last_run_at, kept.last_job_id, kept.next_run_at) == (False, None, None, NOON + DAY)

    def test_schedules_are_no_jobs(self, driver: Driver) -> None:
        put(driver)
        assert everything(driver) == {}
        assert driver.reserve("default", now=NOON + DAY) == []

    # --- Ticks -------------------------------------------------------------------------------------------

    def test_advancing_sets_the_next_tick_and_what_became_of_the_last(self, driver: Driver) -> None:
        before = put(driver)
        won = driver.advance_schedule(
            "report", expected=NOON, next_run_at=NOON + HOUR, last_run_at=NOON, last_job_id="job-1", now=NOON + SECOND
        )
        assert won
        assert driver.get_schedule("report") == replace(
            before, next_run_at=NOON + HOUR, last_run_at=NOON, last_job_id="job-1", updated_at=NOON + SECOND
        )

    def test_a_tick_that_is_no_longer_the_next_one_advances_nothing(self, driver: Driver) -> None:
        before = tick(driver)
        for expected in (NOON, NOON + HOUR + MICROSECOND, NOON + HOUR - MICROSECOND, None):
            assert not driver.advance_schedule(
                "report", expected=expected, next_run_at=NOON + DAY, last_run_at=NOON + DAY, last_job_id="job-2"
            )
        assert driver.get_schedule("report") == before

    def test_what_is_not_given_of_the_last_tick_stays(self, driver: Driver) -> None:
        tick(driver)
        driver.advance_schedule("report", expected=NOON + HOUR, next_run_at=NOON + DAY, now=NOON)
        kept = driver.get_schedule("report")
        assert (kept.next_run_at, kept.last_run_at, kept.last_job_id) == (NOON + DAY, NOON, "job-1")
        driver.advance_schedule("report", expected=NOON + DAY, next_run_at=NOON + DAY, last_job_id="job-2", now=NOON)
        kept = driver.get_schedule("report")
        assert (kept.next_run_at, kept.last_run_at, kept.last_job_id) == (NOON + DAY, NOON, "job-2")

    def test_advancing_to_the_same_moment_wins_too(self, driver: Driver) -> None:
        put(driver)
        for _ in range(2):
            assert driver.advance_schedule("report", expected=NOON, next_run_at=NOON, now=NOON)

    def test_ticks_can_end_and_begin_again(self, driver: Driver) -> None:
        put(driver)
        assert driver.advance_schedule("report", expected=NOON, next_run_at=None, now=NOON)
        assert driver.get_schedule("report").next_run_at is None
        assert not driver.advance_schedule("report", expected=NOON, next_run_at=NOON + HOUR, now=NOON)
        assert driver.advance_schedule("report", expected=None, next_run_at=NOON + HOUR, now=NOON)
        assert not driver.advance_schedule("report", expected=None, next_run_at=NOON + DAY, now=NOON)
        assert driver.get_schedule("report").next_run_at == NOON + HOUR

    def test_a_paused_schedule_can_be_advanced(self, driver: Driver) -> None:
        put(driver, paused=True)
        assert driver.advance_schedule("report", expected=NOON, next_run_at=NOON + HOUR, now=NOON)
        assert driver.get_schedule("report").paused

    def test_of_many_who_advance_one_tick_exactly_one_wins(self, driver: Driver) -> None:
        put(driver)

        def advance(number: int) -> list[bool]:
            wins = []
            for hour in range(5):
                moment = NOON + hour * HOUR
                step = driver.advance_schedule(
                    "report", expected=moment, next_run_at=moment + HOUR, last_job_id=f"job-{number}", now=NOON
                )
                wins.append(step)
                if not step:  # somebody else did, but not necessarily before now
                    assert driver.get_schedule("report").next_run_at != moment
            return wins

        rounds = zip(*in_threads(RIVALS, advance), strict=True)
        assert [sum(wins) for wins in rounds] == [1] * 5
        assert driver.get_schedule("report").next_run_at == NOON + 5 * HOUR

    def test_many_puts_of_one_name_make_one_schedule(self, driver: Driver) -> None:
        kept = in_threads(RIVALS, lambda number: put(driver, priority=number))
        assert {schedule.name for schedule in kept} == {"report"}
        assert driver.get_schedule("report") in kept
        assert len(driver.schedules()) == 1
