"""Time as an argument, and the store's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.core.clock import EPOCH, LATEST, StoreClock, checked, from_micros, to_micros, utc_now
from taskharbor.core.errors import InvalidTime
from taskharbor.testing.times import HOUR, MICROSECOND, NOON, SECOND, FakeClock


def test_a_naive_datetime_is_refused_and_the_message_says_what_to_do() -> None:
    with pytest.raises(InvalidTime, match=r"run_at is naive .* give it a time zone"):
        checked(datetime(2026, 6, 1, 12), "run_at")  # noqa: DTZ001


def test_a_time_zone_that_knows_no_offset_counts_as_naive() -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, _moment: datetime | None) -> None:
            return None

    with pytest.raises(InvalidTime, match="naive"):
        checked(datetime(2026, 6, 1, tzinfo=Nowhere()), "now")


@pytest.mark.parametrize("value", [None, 0, 1.5, "2026-06-01T12:00:00Z", timedelta(0)])
def test_what_is_no_datetime_is_refused(value: object) -> None:
    with pytest.raises(InvalidTime, match="must be a datetime"):
        checked(value, "now")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "moment",
    [
        EPOCH - MICROSECOND,
        LATEST + MICROSECOND,
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
    ],
)
def test_a_time_that_some_store_could_not_keep_is_refused(moment: datetime) -> None:
    with pytest.raises(InvalidTime, match="out of range"):
        checked(moment, "run_at")


@pytest.mark.parametrize("moment", [EPOCH, LATEST, NOON])
def test_the_ends_of_the_range_are_inside(moment: datetime) -> None:
    assert checked(moment, "now") is moment


def test_other_time_zones_become_utc_at_the_same_moment() -> None:
    paris = datetime(2026, 6, 1, 14, tzinfo=ZoneInfo("Europe/Paris"))
    moment = checked(paris, "now")
    assert moment == NOON
    assert moment.tzinfo is UTC


@given(st.datetimes(EPOCH.replace(tzinfo=None), LATEST.replace(tzinfo=None), timezones=st.just(UTC)))
def test_microseconds_since_1970_are_exact_both_ways(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_the_current_time_is_aware_and_in_utc() -> None:
    assert utc_now().tzinfo is UTC


def test_the_store_clock_moves_on_without_asking_the_store_again() -> None:
    local, asked = FakeClock(), []
    clock = StoreClock(lambda: asked.append(1) or NOON + HOUR, refresh_s=30, monotonic=local.monotonic)  # type: ignore[func-returns-value]
    assert clock.now() == NOON + HOUR
    local.advance(29)
    assert clock.now() == NOON + HOUR + 29 * SECOND
    assert len(asked) == 1


def test_the_store_clock_asks_again_when_its_reading_is_old() -> None:
    local, readings = FakeClock(), iter([NOON, NOON + HOUR])
    clock = StoreClock(lambda: next(readings), refresh_s=30, monotonic=local.monotonic)
    assert clock.now() == NOON
    local.advance(30)
    assert clock.now() == NOON + HOUR


def test_the_store_clock_takes_the_middle_of_a_slow_round_trip() -> None:
    local = FakeClock()

    def slow() -> datetime:
        moment = local.now()
        local.advance(2)
        return moment

    clock = StoreClock(slow, monotonic=local.monotonic)
    assert clock.now() == local.now() - SECOND


def test_the_store_clock_trusts_the_quickest_of_a_few_round_trips() -> None:
    local, trips = FakeClock(), iter([2.0, 0.0])

    def measure() -> datetime:
        moment = local.now()
        local.advance(next(trips))
        return moment

    clock = StoreClock(measure, monotonic=local.monotonic)
    assert clock.now() == local.now()


def test_the_store_clock_does_not_care_what_the_local_wall_clock_says() -> None:
    local = FakeClock(start=NOON - 1000 * HOUR)
    clock = StoreClock(lambda: NOON, monotonic=local.monotonic)
    assert clock.now() == NOON


def test_a_store_that_cannot_be_asked_is_asked_again_the_next_time() -> None:
    answers: list[datetime | Exception] = [OSError("gone"), NOON]

    def measure() -> datetime:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = StoreClock(measure, monotonic=FakeClock().monotonic)
    with pytest.raises(OSError, match="gone"):
        clock.now()
    assert clock.now() == NOON
