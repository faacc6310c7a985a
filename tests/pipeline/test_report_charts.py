"""The words, axes and plots of a report say what the numbers do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.pipeline.report_rows import DAY, HOUR, MONDAY

from taskharbor.pipeline import report_axes, report_words
from taskharbor.pipeline.report_charts import Series, bars


def test_lengths_of_time_are_written_short() -> None:
    written = [report_words.seconds(each) for each in (0, 0.0004, 0.012, 0.5, 3.44, 61, 600, 7200, 86_400 * 3.14)]
    assert written == ["0 s", "< 1 ms", "12 ms", "0.50 s", "3.4 s", "61 s", "10 min", "2.0 h", "3.1 d"]
    assert report_words.seconds(None) == "\u2013"


@pytest.mark.parametrize(
    ("number", "span_s", "written"),
    [
        (961, 0.98, "\u2013"),  # less than a second has no rate worth a name
        (961, 1.5, "641/s"),
        (11, 40, "0.28/s"),
        (30, 90, "20/min"),
        (3, 90, "2/min"),
        (1, 90, "0.67/min"),
        (11_700, 72_000, "9.8/min"),
        (5, 7200, "2.5/h"),
        (0, 7200, "0/h"),
    ],
)
def test_a_rate_is_never_told_for_longer_than_was_looked_at(number: int, span_s: float, written: str) -> None:
    assert report_words.rate(number, span_s) == written


def test_a_share_that_falls_short_of_all_never_reads_as_all() -> None:
    assert report_words.share(1.0, near_one=True) == "100 %"
    assert report_words.share(0.9999999, near_one=True) == "> 99.99 %"
    assert report_words.share(0.995, near_one=True) == "99.5 %"
    assert [report_words.share(each) for each in (0, 0.0001, 0.034, 0.42)] == ["0 %", "< 0.1 %", "3.4 %", "42 %"]


def test_axes_end_at_round_numbers_and_hold_every_value() -> None:
    for most in (0, 0.3, 1, 2, 3, 7, 11, 99, 100, 101, 2345, 1e7):
        axis = report_axes.linear(most)
        assert 2 <= len(axis.ticks) <= 6
        assert 0 <= axis.place(most) <= 1
        assert axis.ticks[-1].place == 1
    for values in ([0.0], [0.0004], [0.02, 0.03], [1.0], [0.001, 4e7], [1e9]):
        axis = report_axes.logarithmic(values)
        assert len(axis.ticks) >= 2
        assert all(0 <= axis.place(value) <= 1 for value in values)


@pytest.mark.parametrize("reach", [HOUR / 60, HOUR, 5 * HOUR, DAY, 7 * DAY, 30 * DAY, 400 * DAY, 4000 * DAY])
def test_a_time_axis_has_a_few_ticks_whatever_it_covers(reach: Any) -> None:
    ticks = report_axes.times(MONDAY + HOUR / 7, MONDAY + HOUR / 7 + reach)
    assert 1 <= len(ticks) <= 9
    assert all(0 <= tick.place <= 1 for tick in ticks)


@pytest.mark.parametrize("width", [HOUR / 60, HOUR, DAY])
def test_a_label_stands_below_the_middle_of_its_bar(width: Any) -> None:
    at = [MONDAY, MONDAY + width]
    drawn = str(bars("x", at, width, [Series("a", "succeeded", [3, 1])], ["", ""], Series("b", "made", [2, 1])))
    assert re.findall(r'<span style="left:([\d.]+)%"(.*?)>', drawn) == [("25.0", ""), ("75.0", "")]
    (stack,) = re.findall(r'class="f-succeeded" d="(.*?)"', drawn)
    lefts, wides = re.findall(r"M([\d.]+)", stack), re.findall(r"h([\d.]+)", stack)
    middles = [float(left) + float(wide) / 2 for left, wide in zip(lefts, wides, strict=True)]
    assert middles == [250.0, 750.0]
    # Two points make no line: each has a mark of its own.
    (made,) = re.findall(r'class="s-made" d="(.*?)"', drawn)
    assert (made.count("M"), made.count("L")) == (2, 0)


def test_every_second_of_many_labels_gives_way_on_a_phone() -> None:
    def odd(count: int) -> int:
        at = [MONDAY + number * HOUR for number in range(count)]
        return str(bars("x", at, HOUR, [Series("a", "dead", [1] * count)], [""] * count)).count(' class="odd"')

    assert [odd(count) for count in (1, 2, 4)] == [0, 0, 0]
    assert odd(8) > 0


def test_bars_of_a_day_each_are_named_by_days() -> None:
    ticks = report_axes.times(MONDAY, MONDAY + 2 * DAY, DAY)
    assert [tick.label for tick in ticks] == ["5 May", "6 May", "7 May"]
