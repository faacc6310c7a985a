"""The answers of a report: what is judged, by what, and what is too little to be judged."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.report_rows import (
    DAY,
    HOUR,
    MONDAY,
    check,
    dead_job,
    gold_lake,
    latency,
    promise,
    rejected,
    small,
    tenant,
    throughput,
)

from taskharbor.pipeline import report
from taskharbor.pipeline.report_numbers import Report

NOW = MONDAY + 6 * DAY


def _report(place: Path, rows: dict[str, list[Any]]) -> Report:
    gold_lake(place / "lake", {"audit": [check(MONDAY)], **rows})
    return report(place / "lake", now=NOW, since=None)


def test_the_answers_follow_the_objectives(tmp_path: Path) -> None:
    rows = small()
    rows["slo"] = [promise(MONDAY, 50, 100), promise(MONDAY, 99, 100, objective="success", threshold_s=0.0)]
    rows["latency"] = latency(MONDAY, [0.5] * 18 + [90.0] * 2, [0.2] * 20)
    rows["tenants"] = [tenant(MONDAY, str(number), 0.1) for number in range(9)] + [tenant(MONDAY, "loud", 9.0)]
    found = {each.key: each for each in _report(tmp_path, rows).findings}
    assert list(found) == ["keeping-up", "slow", "failing", "noisy", "capacity", "trust"]
    assert found["keeping-up"].verdict == "bad"
    assert "should start within 60 s in 90 % of cases, and does in 50 %" in found["keeping-up"].text
    assert (found["failing"].verdict, found["trust"].verdict) == ("good", "good")
    assert found["noisy"].verdict == "watch"
    assert found["noisy"].text.startswith("loud takes that much of all run time")
    # It says how busy workers were, and leaves it to the reader whether more of them would have helped.
    assert found["capacity"].text.endswith(
        "In 1 of 1 hour, more than one in twenty waited longer than 60 s, with 0.5 slots busy on average."
    )


def test_a_few_late_attempts_are_no_late_hour(tmp_path: Path) -> None:
    rows = small() | {"latency": latency(MONDAY, [0.5, 90.0], [0.2, 0.2])}
    found = {each.key: each for each in _report(tmp_path, rows).findings}
    assert found["capacity"].verdict == "none"
    assert "waited" not in found["capacity"].text


def test_deaths_are_counted_each_time_and_dead_jobs_once(tmp_path: Path) -> None:
    later = MONDAY + 2 * DAY
    rows = small() | {
        "throughput": [*throughput(MONDAY, dead=3, retried=5), *throughput(later, dead=4)],
        "jobs": [dead_job(MONDAY, "old"), dead_job(later, "a"), dead_job(later + HOUR / 2, "b")],
    }
    found = _report(tmp_path, rows)
    assert (found.totals.deaths, found.totals.still_dead) == (7, 3)
    text = {each.key: each.text for each in found.findings}["failing"]
    assert "12 of 12 attempts failed. Jobs died 7 times, and 3 jobs are dead still." in text
    # What died before the window is none of it; the bucket that it begins in counts as a whole.
    part = report(tmp_path / "lake", since=later + timedelta(seconds=30), now=NOW)
    assert (part.totals.deaths, part.totals.still_dead) == (4, 2)
    assert report(tmp_path / "lake", since=later + HOUR, now=NOW).totals.still_dead == 0


@pytest.mark.parametrize(
    ("sources", "passed", "verdict", "figure"),
    [
        ([], True, "good", "1 of 1 check"),
        # Rows that were never jobs change no number.
        (["orders.csv", "orders.csv"], True, "good", "1 of 1 check"),
        (["orders.csv", "history"], True, "watch", "1 fact rejected"),
        (["history"], False, "bad", "0 of 1 check"),
    ],
)
def test_numbers_are_trusted_when_all_checks_pass_and_no_fact_is_missing(
    tmp_path: Path, sources: list[str], passed: bool, verdict: str, figure: str
) -> None:
    rows = small() | {"rejects": [rejected(MONDAY, source) for source in sources]}
    rows["audit"] = [check(MONDAY, passed=passed)]
    found = _report(tmp_path, rows)
    assert (found.audit.rejects, found.audit.rejected_facts) == (len(sources), sources.count("history"))
    trust = {each.key: each for each in found.findings}["trust"]
    assert (trust.verdict, trust.figure) == (verdict, figure)


@pytest.mark.parametrize(
    ("good", "total", "target", "enough"),
    [
        (2, 2, 0.9, False),
        (0, 2, 0.9, False),
        (19, 19, 0.9, False),
        (20, 20, 0.9, True),
        (99, 99, 0.99, False),
        (100, 100, 0.99, True),
        (1, 5, 0.99, False),
        (0, 5, 0.99, True),  # no chance makes five bad ones of five
    ],
)
def test_a_promise_is_judged_by_attempts_enough_or_not_at_all(
    tmp_path: Path, good: int, total: int, target: float, enough: bool
) -> None:
    rows = small() | {"slo": [promise(MONDAY, good, total, target=target)]}
    found = _report(tmp_path, rows)
    assert [each.enough for each in found.slo.promises] == [enough]
    verdict = {each.key: each for each in found.findings}["keeping-up"]
    assert verdict.verdict == ("none" if not enough else "good" if good / total >= target else "bad")
    assert ("too few attempts to tell" in verdict.text) == (not enough)
