"""When a periodic job is due: cron expressions and fixed intervals, in any time zone.

Pure arithmetic: the next moment is computed field by field, never by walking over minutes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from taskharbor.core.clock import EPOCH, LATEST, checked
from taskharbor.core.errors import InvalidInput
from taskharbor.core.walls import SECOND, aware, changeover, naive, offsets

LONGEST_SPEC: Final = 255
SEARCH_YEARS: Final = 50
"""How far ahead or back a firing is looked for. The rarest date there is, a 29 February on a given weekday across a
century without a leap day, comes round after 40 years."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule: five fields (minute, hour, day of month, month, day of week), six (seconds first), or a nickname.

    Fields take `*`, numbers, names (`MON`, `JAN`), ranges, steps and lists; `?` stands for `*` in the two day fields
    and `L` for the last day of the month; Sunday is 0 and 7. When both day fields are restricted, a day that matches
    either will do, as in classic cron. Nicknames: `@yearly @monthly @weekly @daily @midnight @hourly`.
    `@every 1h30m` counts from 1970 in UTC, so that every process agrees on the moments.

    When clocks change, in the schedule's own time zone:

    - A time that the clock skips fires once, at the moment the clock jumps: `30 2 * * *` runs at 03:00 that day.
      Schedules for every hour (`*` or `*/n` as the hour) have nothing to make up for and go on with the next hour.
    - A time that comes twice fires once, the first time. Schedules with a `*` or `*/n` among their hours, minutes or
      seconds keep firing in real time, through both hours.
    """

    spec: str
    timezone: str
    _rhythm: _Rhythm = field(repr=False, compare=False)

    @classmethod
    def parse(cls, spec: str, timezone: str = "UTC") -> Cron:
        """The schedule that the text describes; InvalidInput, naming the field, if it describes none."""
        if not isinstance(spec, str) or not isinstance(timezone, str):
            raise InvalidInput(f"a schedule and its time zone are text, got {spec!r} and {timezone!r}")
        if len(spec) > LONGEST_SPEC:
            raise InvalidInput(f"the schedule is over {LONGEST_SPEC} characters: split it into two")
        return cls(spec, timezone, _parsed(spec, timezone))

    def next_after(self, moment: datetime) -> datetime | None:
        """The first firing later than `moment`, in UTC; None if there is none (30 February)."""
        found = self._rhythm.after(checked(moment, "moment"))
        return None if found is None or found > LATEST else found

    def first_after(self, moment: datetime) -> datetime:
        """`next_after` for a schedule that is being defined; InvalidInput if it never fires."""
        if (found := self.next_after(moment)) is None:
            raise InvalidInput(f"schedule {self.spec!r} never fires in any year: correct its day or its month")
        return found

    def previous_at_or_before(self, moment: datetime) -> datetime | None:
        """The last firing not later than `moment`, in UTC; None if there was none."""
        found = self._rhythm.at_or_before(checked(moment, "moment"))
        return None if found is None or found < EPOCH else found


class _Rhythm(Protocol):
    def after(self, moment: datetime) -> datetime | None: ...

    def at_or_before(self, moment: datetime) -> datetime | None: ...


class _Every(NamedTuple):
    """A fixed interval, counted from the epoch."""

    period: timedelta

    def after(self, moment: datetime) -> datetime:
        return EPOCH + ((moment - EPOCH) // self.period + 1) * self.period

    def at_or_before(self, moment: datetime) -> datetime:
        return EPOCH + (moment - EPOCH) // self.period * self.period


# --- Calendar schedules ------------------------------------------------------------------------------------


class _Calendar(NamedTuple):
    """The allowed values of every field, sorted, and how they meet a clock that changes.

    A *wall* time is naive: what a clock on the wall of that zone shows.
    """

    zone: tzinfo
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: frozenset[int]
    last_day: bool
    months: tuple[int, ...]
    weekdays: frozenset[int]
    either_day: bool
    """Both day fields are restricted, so a day that matches one of them is enough."""
    every_hour: bool
    real_time: bool

    def after(self, moment: datetime) -> datetime | None:
        local = moment.astimezone(self.zone)
        wall = local.replace(tzinfo=None, microsecond=0, fold=0)
        found = self._first_from(wall + SECOND, moment)
        if self.real_time and not local.fold:
            again = self._second_pass(wall)
            if again is not None and (found is None or again < found):
                return again
        return found

    def at_or_before(self, moment: datetime) -> datetime | None:
        """Found with `after` alone, so that the two can never disagree: look back in growing steps for any firing,
        then halve the stretch behind it."""
        low = None
        span = timedelta(minutes=2)
        limit = timedelta(days=366 * SEARCH_YEARS)
        while low is None:
            start = max(moment - span, EPOCH - SECOND)
            low = self.after(start)
            if low is None or low > moment:
                if span >= limit or start < EPOCH:
                    return None
                low, span = None, span * 8
        high = moment
        while high - low >= SECOND:
            middle = low + (high - low) / 2
            found = self.after(middle)
            if found is not None and found <= high:
                low = found
            else:
                high = middle
        return low

    def _first_from(self, start: datetime, moment: datetime) -> datetime | None:
        """The first firing later than `moment` whose wall time is `start` or later."""
        last_year = min(start.year + SEARCH_YEARS, LATEST.year)
        wall = self._match(start, last_year)
        while wall is not None:
            before, after = offsets(self.zone, wall)
            resume = wall + SECOND
            if before < after:  # the clock jumps over this time
                jump = changeover(self.zone, wall, before, after)
                if not self.every_hour and jump > moment:
                    return jump
                resume = naive(jump + after)
            else:
                first = aware(wall - before)
                if first > moment:
                    return first
                second = aware(wall - after)
                if self.real_time and second > moment:
                    return second
                if before > after and not self.real_time:
                    resume = naive(changeover(self.zone, wall, before, after) + before)
            wall = self._match(resume, last_year)
        return None

    def _second_pass(self, wall: datetime) -> datetime | None:
        """For a wall time that is shown for the first of two times: the first firing after the clock went back."""
        before, after = offsets(self.zone, wall)
        if before <= after:
            return None
        change = changeover(self.zone, wall, before, after)
        match = self._match(naive(change + after), wall.year + 1)
        return aware(match - after) if match is not None and match < naive(change + before) else None

    def _match(self, start: datetime, last_year: int) -> datetime | None:
        """The first wall time from `start` on that matches every field."""
        day = self._day(start.date(), last_year)
        if day == start.date():
            clock = self._clock(start.hour, start.minute, start.second)
            if clock is not None:
                return datetime.combine(day, clock)
            day = self._day(day + timedelta(days=1), last_year)
        return None if day is None else datetime.combine(day, time(self.hours[0], self.minutes[0], self.seconds[0]))

    def _clock(self, hour: int, minute: int, second: int) -> time | None:
        """The first matching time of day from this one on."""
        for hours in self.hours[bisect_left(self.hours, hour) :]:
            if hours > hour:
                return time(hours, self.minutes[0], self.seconds[0])
            for minutes in self.minutes[bisect_left(self.minutes, minute) :]:
                if minutes > minute:
                    return time(hours, minutes, self.seconds[0])
                index = bisect_left(self.seconds, second)
                if index < len(self.seconds):
                    return time(hours, minutes, self.seconds[index])
        return None

    def _day(self, start: date, last_year: int) -> date | None:
        """The first matching day from this one on."""
        year, first_day = start.year, start.day
        months = self.months[bisect_left(self.months, start.month) :]
        if not months or months[0] != start.month:
            first_day = 1
        while year <= last_year:
            for month in months:
                for day in _days(self, *monthrange(year, month)):
                    if day >= first_day:
                        return date(year, month, day)
                first_day = 1
            year, months = year + 1, self.months
        return None


@lru_cache(maxsize=4096)
def _days(calendar: _Calendar, first_weekday: int, length: int) -> tuple[int, ...]:
    """The matching days of a month that begins on that weekday (Monday is 0) and has so many days."""
    found = []
    for day in range(1, length + 1):
        by_number = day in calendar.month_days or (calendar.last_day and day == length)
        by_weekday = (first_weekday + day) % 7 in calendar.weekdays
        if (by_number or by_weekday) if calendar.either_day else (by_number and by_weekday):
            found.append(day)
    return tuple(found)


# --- Reading the text --------------------------------------------------------------------------------------

_NAMES_OF_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS: Final = {name: number for number, name in enumerate(_NAMES_OF_MONTHS, 1)}
_WEEKDAYS: Final = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,4}", re.ASCII)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    example: str
    names: Mapping[str, int] = {}
    is_day: bool = False


_SECOND: Final = _Field("second", 0, 59, "0 or */10")
_MINUTE: Final = _Field("minute", 0, 59, "0, */5 or 15,45")
_HOUR: Final = _Field("hour", 0, 23, "9, */2 or 9-17")
_MONTH_DAY: Final = _Field("day of month", 1, 31, "1, 1,15 or L", is_day=True)
_MONTH: Final = _Field("month", 1, 12, "1, JAN or 4-9", _MONTHS)
_WEEKDAY: Final = _Field("day of week", 0, 7, "MON, MON-FRI or 0,6", _WEEKDAYS, is_day=True)


@lru_cache(maxsize=1024)
def _parsed(spec: str, timezone: str) -> _Rhythm:
    zone = _zone(timezone)
    words = spec.split()
    if words and words[0].startswith("@"):
        if words[0].lower() == "@every":
            return _every(spec, words[1:])
        nickname = _NICKNAMES.get(words[0].lower()) if len(words) == 1 else None
        if nickname is None:
            raise InvalidInput(
                f"schedule {spec!r}: the nicknames are {' '.join(_NICKNAMES)} and @every, as in @every 5m"
            )
        words = nickname.split()
    if len(words) not in (5, 6):
        raise InvalidInput(
            f"schedule {spec!r} has {len(words)} fields, but cron has 5 (minute, hour, day of month, month, day of "
            "week) or 6 (seconds first): for example */5 * * * *"
        )
    second, minute, hour, month_day, month, weekday = words if len(words) == 6 else ["0", *words]
    seconds, minutes, hours = _values(_SECOND, second, spec), _values(_MINUTE, minute, spec), _values(_HOUR, hour, spec)
    every_hour = hour.startswith("*") or len(hours) == 24
    return _Calendar(
        zone=zone,
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        month_days=frozenset(_values(_MONTH_DAY, month_day, spec)),
        last_day="L" in month_day.upper().split(","),
        months=_values(_MONTH, month, spec),
        weekdays=frozenset(day % 7 for day in _values(_WEEKDAY, weekday, spec)),
        either_day=month_day[0] not in "*?" and weekday[0] not in "*?",
        every_hour=every_hour,
        real_time=every_hour or minute.startswith("*") or second.startswith("*") or len(minutes) == 60,
    )


def _every(spec: str, words: list[str]) -> _Every:
    match = _DURATION.fullmatch("".join(words).lower())
    seconds = (
        sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS.values(), strict=True)) if match else 0
    )
    if not 0 < seconds <= 366 * 86_400:
        raise InvalidInput(
            f"schedule {spec!r}: @every takes a time from 1s to 366d in weeks, days, hours, minutes and seconds: "
            "for example @every 30s or @every 1h30m"
        )
    return _Every(timedelta(seconds=seconds))


def _zone(timezone: str) -> tzinfo:
    if timezone == "UTC":
        return UTC  # needs no time zone data, which slim machines do not have
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"timezone {timezone!r} is not known here: use an IANA name, for example Europe/Paris; if the name is "
            "right, this machine has no time zone data: pip install tzdata"
        ) from None


def _values(field: _Field, text: str, spec: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.upper().split(","):
        if part != "L" or field is not _MONTH_DAY:  # the last day is no number
            found.update(_part(field, part, text, spec))
    return tuple(sorted(found))


def _part(field: _Field, part: str, text: str, spec: str) -> range:
    """One member of a list: a value, a range, or either with a step."""
    body, slash, step_text = part.partition("/")
    step = 1
    if slash:
        step = int(step_text) if _NUMBER.fullmatch(step_text) else 0
        if not 1 <= step <= field.high + 1 - field.low:
            raise _bad(field, text, spec, f"the step {step_text!r} is not from 1 to {field.high + 1 - field.low}")
    if body == "*" or (body == "?" and field.is_day):
        return range(field.low, 7 if field is _WEEKDAY else field.high + 1, step)
    first, dash, last = body.partition("-")
    low = _value(field, first, text, spec)
    if dash:
        high = _value(field, last, text, spec)
        if field is _WEEKDAY and high == 0 < low:
            high = 7  # FRI-SUN
        if high < low:
            raise _bad(field, text, spec, f"the range {body} runs backwards, so write it as two joined by a comma")
    else:
        high = field.high if slash else low
    return range(low, high + 1, step)


def _value(field: _Field, word: str, text: str, spec: str) -> int:
    if word in field.names:
        return field.names[word]
    if not _NUMBER.fullmatch(word):
        raise _bad(field, text, spec, f"{word!r} is no value for it" if word else "a value is missing")
    if not field.low <= int(word) <= field.high:
        raise _bad(field, text, spec, f"{word} is not from {field.low} to {field.high}")
    return int(word)


def _bad(field: _Field, text: str, spec: str, why: str) -> InvalidInput:
    return InvalidInput(f"schedule {spec!r}: {field.name} {text!r}: {why}; for example {field.example}")
