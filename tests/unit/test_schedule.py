"""When schedules fire."""

from __future__ import annotations

import sys
import time
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.core.errors import InvalidInput, InvalidTime
from taskharbor.core.schedule import Cron
from taskharbor.testing.times import HOUR, MICROSECOND, MINUTE, NOON, SECOND

PARIS = "Europe/Paris"
NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def firings(spec: str, start: str, count: int, timezone: str = "UTC") -> list[str]:
    """The next firings after a moment in UTC, as a clock in UTC shows them."""
    cron, moment, found = Cron.parse(spec, timezone), utc(start), []
    for _ in range(count):
        following = cron.next_after(moment)
        assert following is not None
        moment = following
        found.append(moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00"))
    return found


# --- Fields ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "start", "expected"),
    [
        ("* * * * *", "2026-06-01 12:00", ["2026-06-01 12:01", "2026-06-01 12:02"]),
        ("*/5 * * * *", "2026-06-01 12:01", ["2026-06-01 12:05", "2026-06-01 12:10"]),
        ("7/20 * * * *", "2026-06-01 12:00", ["2026-06-01 12:07", "2026-06-01 12:27", "2026-06-01 12:47"]),
        ("15,45 8-9 * * *", "2026-06-01 08:50", ["2026-06-01 09:15", "2026-06-01 09:45", "2026-06-02 08:15"]),
        ("0 0-12/6 * * *", "2026-06-01 01:00", ["2026-06-01 06:00", "2026-06-01 12:00", "2026-06-02 00:00"]),
        ("59 23 31 12 *", "2026-06-01 00:00", ["2026-12-31 23:59", "2027-12-31 23:59"]),
        ("0 12 1 JAN,jul *", "2026-06-01 00:00", ["2026-07-01 12:00", "2027-01-01 12:00"]),
        ("0 9 * * MON-FRI", "2026-06-05 10:00", ["2026-06-08 09:00", "2026-06-09 09:00"]),
        ("0 9 * * fri-sun", "2026-06-04 10:00", ["2026-06-05 09:00", "2026-06-06 09:00", "2026-06-07 09:00"]),
        ("0 0 * * 0", "2026-06-01 00:00", ["2026-06-07 00:00", "2026-06-14 00:00"]),
        ("0 0 * * 7", "2026-06-01 00:00", ["2026-06-07 00:00", "2026-06-14 00:00"]),
        ("0 0 ? * 6-7", "2026-06-01 00:00", ["2026-06-06 00:00", "2026-06-07 00:00", "2026-06-13 00:00"]),
        ("0 0 31 * *", "2026-03-31 00:00", ["2026-05-31 00:00", "2026-07-31 00:00"]),
        ("0 0 29 2 *", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 ?", "2096-02-29 00:00", ["2104-02-29 00:00"]),
        ("0 0 L * *", "2028-01-31 00:00", ["2028-02-29 00:00", "2028-03-31 00:00", "2028-04-30 00:00"]),
        ("0 0 15,L 2 *", "2027-01-01 00:00", ["2027-02-15 00:00", "2027-02-28 00:00", "2028-02-15 00:00"]),
        # Six fields begin with the seconds.
        ("*/20 * * * * *", "2026-06-01 12:00:30", ["2026-06-01 12:00:40", "2026-06-01 12:01", "2026-06-01 12:01:20"]),
        ("30 59 23 * * SAT", "2026-06-01 12:00", ["2026-06-06 23:59:30", "2026-06-13 23:59:30"]),
        # Both day fields restricted: either will do. One of them a star, even with a step: both must.
        ("0 0 13 * FRI", "2026-06-01 00:00", ["2026-06-05 00:00", "2026-06-12 00:00", "2026-06-13 00:00"]),
        ("0 0 */2 * MON", "2026-06-01 00:00", ["2026-06-15 00:00", "2026-06-29 00:00", "2026-07-13 00:00"]),
        ("0 0 L * MON", "2026-06-20 00:00", ["2026-06-22 00:00", "2026-06-29 00:00", "2026-06-30 00:00"]),
        ("  0   12 * * *  ", "2026-06-01 12:00", ["2026-06-02 12:00"]),
        # Nicknames.
        ("@yearly", "2026-06-01 00:00", ["2027-01-01 00:00"]),
        ("@annually", "2026-06-01 00:00", ["2027-01-01 00:00"]),
        ("@monthly", "2026-06-01 00:00", ["2026-07-01 00:00"]),
        ("@weekly", "2026-06-01 00:00", ["2026-06-07 00:00"]),
        ("@daily", "2026-06-01 00:00", ["2026-06-02 00:00"]),
        ("@midnight", "2026-06-01 00:00", ["2026-06-02 00:00"]),
        ("@Hourly", "2026-06-01 00:00", ["2026-06-01 01:00"]),
        ("@every 30s", "2026-06-01 12:00:29", ["2026-06-01 12:00:30", "2026-06-01 12:01"]),
        ("@every 5m", "2026-06-01 12:01", ["2026-06-01 12:05", "2026-06-01 12:10"]),
        ("@every 1h30m", "1970-01-01 00:00", ["1970-01-01 01:30", "1970-01-01 03:00", "1970-01-01 04:30"]),
        ("@every 1d", "2026-06-01 12:00", ["2026-06-02 00:00"]),
    ],
)
def test_a_schedule_fires_at_the_moments_its_fields_name(spec: str, start: str, expected: list[str]) -> None:
    assert firings(spec, start, len(expected)) == expected


@pytest.mark.parametrize("spec", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30 FEB ?"])
def test_a_date_that_never_comes_has_no_next_and_no_previous_firing(spec: str) -> None:
    assert Cron.parse(spec).next_after(NOON) is None
    assert Cron.parse(spec).previous_at_or_before(NOON) is None


def test_the_rarest_date_there_is_is_found() -> None:
    # 29 February on a Sunday, over 2100, which is no leap year.
    assert firings("0 0 29 2 */7", "2088-02-29 00:01", 1) == ["2128-02-29 00:00"]


def test_the_next_firing_is_strictly_later_to_the_microsecond() -> None:
    cron = Cron.parse("0 12 * * *")
    assert cron.next_after(NOON - MICROSECOND) == NOON
    assert cron.next_after(NOON) == NOON + 24 * HOUR


def test_the_previous_firing_may_be_the_moment_itself() -> None:
    for cron in (Cron.parse("0 12 * * *"), Cron.parse("@every 12h")):
        assert cron.previous_at_or_before(NOON) == NOON
        assert cron.previous_at_or_before(NOON + MICROSECOND) == NOON
    assert Cron.parse("0 12 * * *").previous_at_or_before(NOON - MICROSECOND) == NOON - 24 * HOUR


def test_a_yearly_firing_is_found_looking_back_over_years() -> None:
    assert Cron.parse("30 6 29 2 *").previous_at_or_before(NOON) == utc("2024-02-29 06:30")


def test_moments_come_in_any_time_zone_and_leave_in_utc() -> None:
    found = Cron.parse("0 9 * * *", PARIS).next_after(datetime(2026, 6, 1, 8, tzinfo=ZoneInfo(NEW_YORK)))
    assert found == utc("2026-06-02 07:00")
    assert found.tzinfo is UTC


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(InvalidTime):
        Cron.parse("* * * * *").next_after(datetime(2026, 6, 1))  # noqa: DTZ001


def test_at_the_ends_of_time_there_is_none() -> None:
    assert Cron.parse("0 0 1 1 *").next_after(utc("8999-06-01 00:00")) == utc("9000-01-01 00:00")
    assert Cron.parse("0 0 1 2 *").next_after(utc("8999-06-01 00:00")) is None
    assert Cron.parse("0 12 * * *").previous_at_or_before(utc("1970-01-01 11:00")) is None


def test_every_process_agrees_on_an_interval_whatever_the_time_zone() -> None:
    assert firings("@every 7m", "2026-06-01 12:00", 3) == firings("@every 7m", "2026-06-01 12:00", 3, PARIS)


# --- Clocks that change ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "timezone", "start", "expected"),
    [
        # 02:00 to 03:00 is skipped in Paris on 29 March 2026, at 01:00 UTC.
        ("30 2 * * *", PARIS, "2026-03-28 00:00", ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
        ("0 2 * * *", PARIS, "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        ("0,15,30 2 * * *", PARIS, "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        ("0 2,3 * * *", PARIS, "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        ("*/20 2 * * *", PARIS, "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-30 00:00", "2026-03-30 00:20"]),
        ("30 * * * *", PARIS, "2026-03-29 00:00", ["2026-03-29 00:30", "2026-03-29 01:30"]),
        ("@hourly", PARIS, "2026-03-28 23:30", ["2026-03-29 00:00", "2026-03-29 01:00", "2026-03-29 02:00"]),
        ("*/30 * * * *", PARIS, "2026-03-29 00:15", ["2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30"]),
        ("@daily", PARIS, "2026-03-28 12:00", ["2026-03-28 23:00", "2026-03-29 22:00"]),
        # 02:00 to 03:00 comes twice in Paris on 25 October 2026, from 00:00 and from 01:00 UTC.
        ("30 2 * * *", PARIS, "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        ("30 2 * * *", PARIS, "2026-10-25 01:10", ["2026-10-26 01:30"]),
        ("0 3 * * *", PARIS, "2026-10-24 12:00", ["2026-10-25 02:00"]),
        ("30 * * * *", PARIS, "2026-10-25 00:00", ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"]),
        ("*/30 2 * * *", PARIS, "2026-10-25 00:10", ["2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30"]),
        ("45 * * * *", PARIS, "2026-10-25 00:50", ["2026-10-25 01:45", "2026-10-25 02:45"]),
        ("*/30 * * * * *", PARIS, "2026-10-25 00:59", ["2026-10-25 00:59:30", "2026-10-25 01:00"]),
        # The same in New York: 8 March at 07:00 UTC and 1 November 2026 at 06:00 UTC.
        ("30 2 * * *", NEW_YORK, "2026-03-08 00:00", ["2026-03-08 07:00", "2026-03-09 06:30"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
        ("15 * * * *", NEW_YORK, "2026-11-01 05:00", ["2026-11-01 05:15", "2026-11-01 06:15", "2026-11-01 07:15"]),
        # Lord Howe changes by half an hour: 02:00 to 02:30 is skipped on 4 October 2026, at 15:30 UTC the day before;
        # 01:30 to 02:00 comes twice on 5 April 2026, from 14:30 and from 15:00 UTC the day before.
        ("15 2 * * *", LORD_HOWE, "2026-10-03 00:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        ("45 2 * * *", LORD_HOWE, "2026-10-03 00:00", ["2026-10-03 15:45"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-04 00:00", ["2026-04-04 14:45", "2026-04-05 15:15"]),
        ("15 1 * * *", LORD_HOWE, "2026-04-04 00:00", ["2026-04-04 14:15", "2026-04-05 14:45"]),
        ("45 * * * *", LORD_HOWE, "2026-04-04 14:00", ["2026-04-04 14:45", "2026-04-04 15:15", "2026-04-04 16:15"]),
        # Midnight itself is skipped in Cairo on 24 April 2026, and a whole day was in Samoa, 30 December 2011.
        ("@daily", "Africa/Cairo", "2026-04-23 12:00", ["2026-04-23 22:00", "2026-04-24 21:00"]),
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-01 00:00", ["2011-12-30 10:00", "2012-12-29 22:00"]),
        ("0 12 * * *", "Asia/Kathmandu", "2026-06-01 00:00", ["2026-06-01 06:15"]),
    ],
)
def test_schedules_follow_the_clock_of_their_zone_when_it_changes(
    spec: str, timezone: str, start: str, expected: list[str]
) -> None:
    assert firings(spec, start, len(expected), timezone) == expected


def test_a_schedule_of_every_minute_never_pauses_or_doubles_when_clocks_change() -> None:
    for start in ("2026-03-29 00:00", "2026-10-25 00:00"):
        moment, cron = utc(start), Cron.parse("* * * * *", PARIS)
        for _ in range(180):
            assert cron.next_after(moment) == moment + MINUTE
            moment += MINUTE


# --- For every schedule ------------------------------------------------------------------------------------

ZONES = st.sampled_from(["UTC", PARIS, NEW_YORK, LORD_HOWE, "Asia/Kathmandu", "America/St_Johns", "Africa/Casablanca"])


def one_field(low: int, high: int) -> st.SearchStrategy[str]:
    numbers = st.integers(low, high)
    ranges = st.tuples(numbers, numbers).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    steps = st.integers(1, high - low)
    member = st.one_of(
        numbers.map(str), ranges, st.builds("{}/{}".format, ranges, steps), steps.map(lambda step: f"*/{step}")
    )
    return st.one_of(st.just("*"), st.lists(member, min_size=1, max_size=3).map(",".join))


CLOCK = st.builds("{} {} {}".format, one_field(0, 59), one_field(0, 59), one_field(0, 23))
DAYS = st.builds("{} {} {}".format, one_field(1, 31), one_field(1, 12), one_field(0, 7))
SPECS = st.builds("{} {}".format, CLOCK, DAYS)
MOMENTS = st.one_of(
    st.datetimes(datetime(1971, 1, 1), datetime(2150, 1, 1)),  # noqa: DTZ001
    # Days on which some of the clocks change.
    st.builds(
        lambda day, seconds: datetime.combine(day, datetime.min.time()) + timedelta(seconds=seconds),
        st.sampled_from([date(2026, 3, 29), date(2026, 10, 25), date(2026, 3, 8), date(2026, 11, 1), date(2026, 4, 4)]),
        st.floats(0, 86_400),
    ),
).map(lambda moment: moment.replace(tzinfo=UTC))


def allowed(field: str, low: int, high: int) -> set[int]:
    """A second opinion on what a field means."""
    found = set()
    for member in field.split(","):
        body, _, step = member.partition("/")
        first, _, last = (f"{low}-{high}" if body == "*" else body).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def matches(spec: str, local: datetime) -> bool:
    second, minute, hour, day, month, weekday = spec.split()
    by_day = local.day in allowed(day, 1, 31)
    by_weekday = local.isoweekday() % 7 in {number % 7 for number in allowed(weekday, 0, 6 if "*" in weekday else 7)}
    either = not day.startswith("*") and not weekday.startswith("*")
    return (
        local.second in allowed(second, 0, 59)
        and local.minute in allowed(minute, 0, 59)
        and local.hour in allowed(hour, 0, 23)
        and local.month in allowed(month, 1, 12)
        and ((by_day or by_weekday) if either else (by_day and by_weekday))
    )


def clock_jumps_at(moment: datetime, zone: ZoneInfo) -> bool:
    just_before = (moment - SECOND).astimezone(zone).utcoffset()
    now = moment.astimezone(zone).utcoffset()
    assert just_before is not None
    assert now is not None
    return just_before < now


@given(spec=SPECS, timezone=ZONES, moment=MOMENTS)
def test_the_next_firing_is_later_and_matches_the_fields_or_is_a_jump_of_the_clock(
    spec: str, timezone: str, moment: datetime
) -> None:
    found = Cron.parse(spec, timezone).next_after(moment)
    if found is not None:
        assert found > moment
        zone = ZoneInfo(timezone)
        assert matches(spec, found.astimezone(zone)) or clock_jumps_at(found, zone)


@given(clock=CLOCK, timezone=ZONES, moment=MOMENTS)
def test_no_matching_second_lies_between_a_moment_and_the_next_firing(
    clock: str, timezone: str, moment: datetime
) -> None:
    spec, zone = f"{clock} * * *", ZoneInfo(timezone)
    found = Cron.parse(spec, timezone).next_after(moment)
    assert found is not None
    second = moment.replace(microsecond=0) + SECOND
    for _ in range(2_000):
        if second >= found:
            break
        local = second.astimezone(zone)
        assert local.fold or not matches(spec, local)
        second += SECOND


@given(days=DAYS, moment=MOMENTS)
def test_no_matching_day_lies_between_a_moment_and_the_next_firing(days: str, moment: datetime) -> None:
    spec = f"0 0 0 {days}"
    found = Cron.parse(spec).next_after(moment)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    for _ in range(800):
        if found is not None and day >= found:
            break
        assert not matches(spec, day)
        day += timedelta(days=1)


CHANGES = st.sampled_from(
    [
        (PARIS, "2026-03-29 01:00"),
        (PARIS, "2026-10-25 01:00"),
        (NEW_YORK, "2026-03-08 07:00"),
        (NEW_YORK, "2026-11-01 06:00"),
        (LORD_HOWE, "2026-10-03 15:30"),
        (LORD_HOWE, "2026-04-04 15:00"),
    ]
)


def fires_at(minute: str, hour: str, moment: datetime, zone: ZoneInfo) -> bool:
    """The rules about clocks that change, said a second time, for one minute."""
    spec, local = f"0 {minute} {hour} * * *", moment.astimezone(zone)
    every_hour = hour.startswith("*") or len(allowed(hour, 0, 23)) == 24
    real_time = every_hour or minute.startswith("*") or len(allowed(minute, 0, 59)) == 60
    if matches(spec, local) and (real_time or not local.fold):
        return True
    if every_hour or not clock_jumps_at(moment, zone):
        return False
    shown = (moment - MINUTE).astimezone(zone).replace(tzinfo=None) + MINUTE
    skipped = int((local.replace(tzinfo=None) - shown) / MINUTE)
    return any(matches(spec, shown + number * MINUTE) for number in range(skipped))


@given(minute=one_field(0, 59), hour=one_field(0, 4), change=CHANGES)
def test_around_a_change_of_the_clock_exactly_the_moments_of_the_rules_fire(
    minute: str, hour: str, change: tuple[str, str]
) -> None:
    timezone, at = change
    zone, cron = ZoneInfo(timezone), Cron.parse(f"{minute} {hour} * * *", timezone)
    start, end = utc(at) - 3 * HOUR, utc(at) + 3 * HOUR
    expected = [start + number * MINUTE for number in range(1, 361)]
    expected = [moment for moment in expected if fires_at(minute, hour, moment, zone)]
    found, moment = [], cron.next_after(start)
    while moment is not None and moment <= end:
        found.append(moment)
        moment = cron.next_after(moment)
    assert found == expected


@given(spec=st.one_of(SPECS, st.integers(1, 100_000).map("@every {}s".format)), timezone=ZONES, moment=MOMENTS)
def test_looking_back_and_looking_ahead_agree(spec: str, timezone: str, moment: datetime) -> None:
    cron = Cron.parse(spec, timezone)
    previous, following = cron.previous_at_or_before(moment), cron.next_after(moment)
    if previous is not None:
        assert previous <= moment
        assert cron.next_after(previous) == following
        assert cron.next_after(previous - MICROSECOND) == previous
    if following is not None:
        assert cron.previous_at_or_before(following) == following
        assert cron.previous_at_or_before(following - MICROSECOND) == previous


@given(text=st.one_of(st.text(max_size=40), st.text("0123456789*/-,?L@MONevry ", max_size=30)))
def test_any_text_is_a_schedule_or_is_refused_as_bad_input(text: str) -> None:
    try:
        cron = Cron.parse(text)
    except InvalidInput:
        return
    cron.next_after(NOON)


@pytest.mark.parametrize(
    "spec", ["* * * * * *", "0 0 29 2 *", "0 0 30 2 *", "59 59 23 31 12 *", "*/5 9-17 * * MON-FRI"]
)
def test_looking_ahead_takes_no_time_worth_mentioning(spec: str) -> None:
    cron = Cron.parse(spec, PARIS)
    best = min(_timed(cron) for _ in range(5))
    assert best < 0.005


def _timed(cron: Cron) -> float:
    begun = time.perf_counter()
    cron.next_after(NOON)
    return time.perf_counter() - begun


# --- What is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("60 * * * *", "minute '60'"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day of month '0'"),
        ("* * 32 * *", "day of month '32'"),
        ("* * * 13 *", "month '13'"),
        ("* * * * 8", "day of week '8'"),
        ("60 * * * * *", "second '60'"),
        ("*/0 * * * *", "minute"),
        ("*/90 * * * *", "minute"),
        ("*/x * * * *", "minute"),
        ("30-10 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("-5 * * * *", "minute"),
        ("? * * * *", "minute"),
        ("* L * * *", "hour"),
        ("* * ,L * *", "day of month"),
        ("* * L-2 * *", "day of month"),
        ("* * * MON *", "month"),
        ("* * * * JAN", "day of week"),
        ("* * * * 5L", "day of week"),
        ("* * * * MON#2", "day of week"),
        ("٣ * * * *", "minute"),
        ("1.5 * * * *", "minute"),
        ("99999999999999999999 * * * *", "minute"),
    ],
)
def test_a_bad_field_is_named_with_an_example(spec: str, field: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{field}.*for example") as caught:
        Cron.parse(spec)
    assert spec in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        *("", "   ", "*", "* * * *", "* * * * * * *", "* " * 200),
        *("@", "@often", "@daily 5", "@every", "@every 0s", "@every 5", "@every -5s"),
        *("@every 1m1h", "@every 400d", "@every 1.5s", "@every 999999999w"),
    ],
)
def test_a_text_of_another_shape_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInput):
        Cron.parse(spec)


@pytest.mark.parametrize(
    "timezone", ["Mars/Olympus", "", " ", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b", "É"]
)
def test_an_unknown_time_zone_is_refused_with_what_to_install(timezone: str) -> None:
    with pytest.raises(InvalidInput, match="Europe/Paris.*pip install tzdata"):
        Cron.parse("* * * * *", timezone)


@pytest.mark.parametrize("given", [None, 5, b"* * * * *"])
def test_what_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput):
        Cron.parse(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        Cron.parse("* * * * *", given)  # type: ignore[arg-type]


def test_utc_needs_no_time_zone_data(monkeypatch: pytest.MonkeyPatch) -> None:
    zoneinfo.reset_tzpath(to=[])
    for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    ZoneInfo.clear_cache()
    try:
        assert Cron.parse("17 3 * * *", "UTC").next_after(NOON) == utc("2026-06-02 03:17")
        with pytest.raises(InvalidInput, match="pip install tzdata"):
            Cron.parse("17 3 * * *", "Antarctica/Troll")
    finally:
        zoneinfo.reset_tzpath()


def test_two_schedules_of_the_same_text_and_zone_are_equal() -> None:
    assert Cron.parse("*/5 * * * *", PARIS) == Cron.parse("*/5 * * * *", PARIS)
    assert Cron.parse("*/5 * * * *", PARIS) != Cron.parse("*/5 * * * *")
