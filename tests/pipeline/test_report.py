"""The numbers of a report are those of gold, added up; whatever cannot be added up is worked out again."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.exact import feed, ran_s
from tests.pipeline.lives import NOON, live
from tests.pipeline.pasts import Pasts
from tests.pipeline.report_rows import (
    DAY,
    HOUR,
    MONDAY,
    arrived,
    check,
    failure,
    gold_lake,
    latency,
    promise,
    small,
    tenant,
    throughput,
    worker,
)

from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline import report
from taskharbor.pipeline.lake import LakeError, LakeTooNew, NotALake
from taskharbor.pipeline.report_gold import NoGold
from taskharbor.pipeline.report_numbers import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = MONDAY + 6 * DAY


def _report(place: Path, rows: dict[str, list[Any]], **options: Any) -> Report:
    gold_lake(place / "lake", {"audit": [check(MONDAY)], **rows})
    return report(place / "lake", now=NOW, **({"since": None} | options))


# --- Over time ---------------------------------------------------------------------------------------------------


def test_counts_add_up_and_hours_without_work_are_there_too(tmp_path: Path) -> None:
    rows = [
        *throughput(MONDAY, enqueued=5, succeeded=3, retried=1, tenant="a"),
        *throughput(MONDAY, enqueued=1, succeeded=1, tenant="b"),
        *throughput(MONDAY + 5 * HOUR, enqueued=2, dead=1, lapsed=2, other=4, queue="bulk"),
    ]
    found = _report(tmp_path, {"throughput": rows})
    assert [each.at for each in found.throughput] == [MONDAY + number * HOUR for number in range(6)]
    assert found.window.grain == "hour"
    assert (found.window.first, found.window.last) == (MONDAY, MONDAY + 6 * HOUR)
    assert [each.counts.started for each in found.throughput] == [5, 0, 0, 0, 0, 7]
    counts = found.totals.counts
    assert (counts.enqueued, counts.started, counts.succeeded, counts.burned) == (8, 12, 4, 4)
    assert found.totals.burned_share == pytest.approx(4 / 12)
    assert [(each.queue, each.counts.started) for each in found.queues] == [("bulk", 7), ("mail", 5)]


@pytest.mark.parametrize(
    ("reach", "grain", "buckets"), [(timedelta(minutes=9), "minute", 10), (6 * DAY, "hour", 145), (30 * DAY, "day", 31)]
)
def test_buckets_are_as_wide_as_the_time_that_they_have_to_cover(
    tmp_path: Path, reach: timedelta, grain: str, buckets: int
) -> None:
    found = _report(
        tmp_path, {"throughput": [*throughput(MONDAY, succeeded=1), *throughput(MONDAY + reach, succeeded=1)]}
    )
    assert (found.window.grain, len(found.throughput)) == (grain, buckets)
    assert found.totals.counts.succeeded == 2


def test_a_clock_that_was_off_by_decades_does_not_make_a_million_buckets(tmp_path: Path) -> None:
    far = MONDAY + timedelta(days=365 * 40)
    found = _report(tmp_path, {"throughput": [*throughput(MONDAY, succeeded=1), *throughput(far, succeeded=1)]})
    assert [each.at for each in found.throughput] == [MONDAY, far]


def test_percentiles_of_histograms_that_were_added_up_are_near_the_true_ones(tmp_path: Path) -> None:
    dice = random.Random(5)
    waits = [dice.expovariate(0.1) + 0.002 for _ in range(3000)]
    runs = [dice.random() + 0.01 for _ in range(3000)]
    rows = [
        *latency(MONDAY, waits[:1000], runs[:1000]),
        *latency(MONDAY, waits[1000:1500], runs[1000:1500], type="other"),
        *latency(MONDAY + 4 * HOUR, waits[1500:], runs[1500:], queue="bulk"),
    ]
    hours = [*throughput(MONDAY, succeeded=1500), *throughput(MONDAY + 4 * HOUR, succeeded=1500)]
    found = _report(tmp_path, {"throughput": hours, "latency": rows})
    assert found.totals.wait is not None
    for part, value in ((50, found.totals.wait.p50_s), (95, found.totals.wait.p95_s), (99, found.totals.wait.p99_s)):
        assert value == pytest.approx(sorted(waits)[len(waits) * part // 100 - 1], rel=0.03)
    assert found.totals.wait.max_s == max(waits)
    assert found.totals.wait.mean_s == pytest.approx(sum(waits) / len(waits))
    assert found.totals.compute_s == pytest.approx(sum(runs))
    assert [(each.queue, each.type, each.attempts) for each in found.types] == [
        ("bulk", "send", 1500), ("mail", "send", 1000), ("mail", "other", 500),
    ]  # fmt: skip
    assert sum(each.compute_share for each in found.types) == pytest.approx(1)
    assert [each.attempts for each in found.latency] == [1500, 1500]


# --- Failures, tenants, workers, promises, arrivals, checks ----------------------------------------------------------


def test_an_error_counts_as_one_over_days_and_types_with_its_share_of_what_burned(tmp_path: Path) -> None:
    rows = [
        failure(MONDAY, "f1", 3, sample="E: at 1", dead=1, tenants=["a", "b"]),
        failure(MONDAY + 2 * DAY, "f1", 5, type="other", sample="E: at 2", tenants=["b"]),
        failure(MONDAY + 2 * DAY, "f2", 2, error_class="Lapsed"),
    ]
    hours = [*throughput(MONDAY, retried=2, dead=1), *throughput(MONDAY + 2 * DAY, retried=9, succeeded=5)]
    found = _report(tmp_path, {"throughput": hours, "failures": rows}).failures
    assert (found.burned, found.attempts, found.fingerprints_in_all) == (12, 17, 2)
    first, second = found.fingerprints
    assert (first.fingerprint, first.failures, first.dead, first.by_day) == ("f1", 8, 1, [3, 0, 5])
    # Twelve burned, ten of them left an error text.
    assert (first.share, second.share) == (pytest.approx(8 / 12), pytest.approx(2 / 12))
    assert (first.types, first.tenants, first.sample) == (["other", "send"], ["b", "a"], "E: at 2")
    assert (first.first_seen, first.last_seen) == (MONDAY, MONDAY + 2 * DAY)
    assert [(each.error_class, each.by_day) for each in found.classes] == [("E", [3, 0, 5]), ("Lapsed", [0, 0, 2])]


def test_an_error_is_new_only_if_the_lake_never_saw_it_before_the_last_day(tmp_path: Path) -> None:
    last = MONDAY + 5 * DAY
    rows = [
        failure(MONDAY, "old", 1),
        failure(last, "old", 1),
        failure(last, "fresh", 1),
    ]
    hours = [*throughput(MONDAY, retried=1), *throughput(last, retried=2)]
    found = _report(tmp_path, {"throughput": hours, "failures": rows}, since=2 * DAY)
    assert {each.fingerprint: each.is_new for each in found.failures.fingerprints} == {"old": False, "fresh": True}
    assert {each.fingerprint: each.first_seen for each in found.failures.fingerprints}["old"] == MONDAY


def test_a_tenant_is_noisy_over_the_window_by_the_rule_of_a_day(tmp_path: Path) -> None:
    rows = [tenant(MONDAY, name, 1.0) for name in "abcdefgh"]
    rows += [tenant(MONDAY, "loud", 10.0, noisy=True), tenant(MONDAY + DAY, "loud", 20.0, noisy=True)]
    found = _report(tmp_path, {"throughput": throughput(MONDAY, succeeded=1), "tenants": rows}).tenants
    assert [each.tenant_id for each in found.tenants if each.noisy] == ["loud"]
    first = found.tenants[0]
    assert (first.tenant_id, first.noisy_days, first.compute_s) == ("loud", 2, 30.0)
    assert (first.share, found.fair_share) == (pytest.approx(30 / 38), pytest.approx(1 / 9))


def test_a_worker_is_as_busy_as_its_hours_together(tmp_path: Path) -> None:
    rows = [
        worker(MONDAY, "w", 1000.0, 2000.0),
        worker(MONDAY + HOUR, "w", 6000.0, 3000.0),
        worker(MONDAY + HOUR, "v", 600.0, 3000.0, lapsed=5),
    ]
    found = _report(tmp_path, {"throughput": throughput(MONDAY, succeeded=1), "workers": rows}).workers
    first, second = found.workers
    # An hour with one slot, and one with two.
    assert first.busy_share == pytest.approx(7000 / (2000 + 2 * 3000))
    assert (first.span_s, first.busy_slots, first.throughput) == (5000.0, pytest.approx(1.4), 18 / 5000)
    assert (first.attempts, first.crash_rate, second.crash_rate) == (20, 0.1, 0.5)
    assert [(each.at, each.workers) for each in found.capacity] == [(MONDAY, 1), (MONDAY + HOUR, 2)]
    assert found.capacity[1].busy_slots == pytest.approx(6600 / 3600)
    assert not any(each.at_most for each in found.capacity)


def test_of_attempts_that_are_over_before_the_store_is_told_no_slots_are_claimed(tmp_path: Path) -> None:
    rows = [
        worker(MONDAY, "quick", 108.0, 0.3, attempts=5000, succeeded=5000, lapsed=0),
        worker(MONDAY, "lost", 0.0, 0.0),
        worker(MONDAY + HOUR, "steady", 1000.0, 2000.0),
    ]
    found = _report(tmp_path, {"throughput": throughput(MONDAY, succeeded=1), "workers": rows}).workers
    by_name = {each.worker: each for each in found.workers}
    assert (by_name["quick"].busy_slots, by_name["quick"].busy_share, by_name["quick"].succeeded) == (None, None, 5000)
    assert (by_name["lost"].busy_slots, by_name["lost"].throughput) == (None, 0.0)
    assert by_name["steady"].busy_slots == 0.5
    assert [each.at_most for each in found.capacity] == [True, False]


def test_a_promise_is_judged_over_the_window_and_over_its_last_day(tmp_path: Path) -> None:
    rows = [
        promise(MONDAY, 100, 100),
        promise(MONDAY + 3 * DAY, 80, 100),
        promise(MONDAY, 5, 10, type="former", threshold_s=5.0),
        promise(MONDAY + DAY, 10, 10, type="former", threshold_s=50.0),
    ]
    found = _report(tmp_path, {"throughput": throughput(MONDAY, succeeded=1), "slo": rows}).slo
    by_name = {(each.type, each.threshold_s): each for each in found.promises}
    send = by_name["send", 60.0]
    assert (send.attainment, send.kept, send.current) == (0.9, True, True)
    assert (send.burn_rate, send.burn_rate_last_day) == (pytest.approx(1), pytest.approx(2))
    assert (by_name["former", 5.0].current, by_name["former", 50.0].current) == (False, True)
    assert by_name["former", 5.0].burn_rate == pytest.approx(5)
    assert by_name["former", 50.0].burn_rate_last_day is None
    assert len(found.times) <= 60
    assert all(len(each.by_time) == len(found.times) for each in found.promises)
    assert (send.by_time[0], send.by_time[-1], send.by_time[1]) == (1.0, 0.8, None)
    assert (send.enough, send.burning) == (True, True)
    assert (send.enough_by_time[0], send.enough_by_time[1]) == (True, False)


def test_arrivals_are_the_mean_of_the_weeks_that_have_the_hour(tmp_path: Path) -> None:
    # From Wednesday noon to the Thursday of the week after: Wednesday noon was seen twice, Tuesday once, Friday once.
    first, last = MONDAY + 2 * DAY + 12 * HOUR, MONDAY + 10 * DAY
    rows = [arrived(first, 10), arrived(first + 7 * DAY, 20), arrived(MONDAY + 8 * DAY, 7), arrived(last, 1)]
    found = _report(tmp_path, {"throughput": throughput(first, enqueued=1), "arrivals": rows}).arrivals
    cells = {(cell.weekday, cell.hour): cell for cell in found.cells}
    assert len(cells) == 168
    assert (cells[2, 12].mean, cells[2, 12].weeks) == (15.0, 2)
    assert (cells[1, 0].mean, cells[1, 0].weeks) == (7.0, 1)
    assert (cells[4, 5].mean, cells[4, 5].weeks) == (0.0, 1)
    assert found.busiest == cells[2, 12]
    assert found.mean == pytest.approx(38 / sum(cell.weeks for cell in found.cells))


def test_the_last_word_of_each_check_counts_and_earlier_failures_are_told(tmp_path: Path) -> None:
    rows = [
        check(MONDAY, passed=False, batch=1),
        check(MONDAY + HOUR, batch=1),
        check(MONDAY + HOUR, "no lost id", passed=False, batch=2),
    ]
    found = _report(tmp_path, {"throughput": throughput(MONDAY, succeeded=1), "audit": rows}).audit
    assert found.passed is False
    assert [(each.check, each.passed, each.times_failed) for each in found.checks] == [
        ("no lost id", False, 1), ("no row twice", True, 1),
    ]  # fmt: skip
    assert found.batches == 2


# --- Which lakes, and which part of them -----------------------------------------------------------------------------


def test_since_leaves_out_what_ended_before_but_takes_the_bucket_that_it_falls_into(tmp_path: Path) -> None:
    rows = [*throughput(MONDAY, succeeded=1), *throughput(MONDAY + HOUR, succeeded=2)]
    rows += throughput(MONDAY + DAY, succeeded=4)
    lake = gold_lake(tmp_path / "lake", {"throughput": rows, "audit": [check(MONDAY)]}).root

    def counted(since: Any) -> int:
        return report(lake, since=since, now=NOW).totals.counts.succeeded

    assert counted(None) == 7
    assert counted(MONDAY) == 7
    assert counted(MONDAY + HOUR + timedelta(minutes=20)) == 6
    assert counted(MONDAY + 2 * HOUR) == 4
    assert counted(NOW - MONDAY) == 7
    with pytest.raises(InvalidInput, match="with its offset"):
        counted(MONDAY.replace(tzinfo=None))


def test_a_window_that_cuts_everything_says_so_and_still_tells_of_the_lake(tmp_path: Path) -> None:
    found = _report(tmp_path, small(), since=timedelta(hours=1))
    assert found.empty is not None
    assert "Mon 5 May 2031, 00:00" in found.empty
    assert "--since all" in found.empty
    assert (found.totals.counts.started, found.findings, found.window.first) == (0, [], None)
    assert found.lag.newest_at == MONDAY
    assert [each.passed for each in found.audit.checks] == [True]


def test_a_lake_that_is_not_there_or_not_fit_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NotALake, match="there is no lake at"):
        report(tmp_path / "none")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(NotALake, match=r"is not a lake .*notes\.txt"):
        report(tmp_path / "other")
    lake = gold_lake(tmp_path / "lake", {})
    with pytest.raises(NoGold, match="run taskharbor pipeline run first"):
        report(lake.root)
    lake.write_json("lake.json", {"version": 99})
    with pytest.raises(LakeTooNew, match="upgrade taskharbor"):
        report(lake.root)
    lake.write_json("lake.json", {"version": 0})
    with pytest.raises(LakeError, match="pipeline run brings it up to date"):
        report(lake.root)


def test_a_lake_with_a_bronze_alone_has_no_gold_yet(tmp_path: Path) -> None:
    lake = gold_lake(tmp_path / "lake", {})
    for table in (lake.root / "gold").iterdir():
        table.rename(tmp_path / table.name)
    with pytest.raises(NoGold, match="has no gold yet: run taskharbor pipeline run first"):
        report(lake.root)


def test_a_run_that_is_under_way_is_told(tmp_path: Path) -> None:
    from taskharbor.pipeline import delta
    from taskharbor.pipeline.lake_schemas import GOLD_LATENCY

    lake = gold_lake(tmp_path / "lake", small())
    assert not report(lake.root, since=None).lag.under_way
    delta.commit(lake, GOLD_LATENCY, [], store_id="store-1", batch=2)
    assert report(lake.root, since=None).lag.under_way


def test_a_store_that_cannot_be_reached_is_no_reason_to_have_no_report(tmp_path: Path) -> None:
    found = _report(tmp_path, small(), url=f"sqlite:///{tmp_path / 'none' / 'jobs.db'}")
    assert found.lag.store_problem
    assert found.totals.counts.started == 12


# --- End to end ----------------------------------------------------------------------------------------------------


def test_a_report_of_a_real_run_counts_what_the_feed_has(spark: SparkSession, past: Pasts) -> None:

    driver, url, lake = past(live, rounds=3)
    live(driver, first=3)
    found = report(lake, since=None, url=url, now=NOON + DAY)
    behind = found.lag.store_rows
    assert behind
    facts = feed(driver)[:-behind]
    attempts = [fact.attempt for fact in facts if fact.attempt is not None]
    assert found.totals.counts.started == len(attempts)
    assert found.rows == {"facts": len(facts), "attempts": len(attempts), "jobs": len({f.job_id for f in facts})}
    assert found.failures.burned == sum(each.outcome in ("retried", "dead", "lapsed") for each in attempts)
    assert found.totals.wait is not None
    assert found.totals.wait.max_s == max((each.started_at - each.due_at).total_seconds() for each in attempts)
    assert found.totals.compute_s == pytest.approx(sum(ran_s(each) for each in attempts))
    ended = {each.worker: 0.0 for each in attempts}
    for each in attempts:
        ended[each.worker] += ran_s(each) if each.outcome != "lapsed" else 0.0
    assert {each.worker: each.busy_s for each in found.workers.workers} == pytest.approx(ended)
    assert found.totals.deaths == found.totals.still_dead == sum(fact.status == "dlq" for fact in facts)
    assert {each.worker for each in found.workers.workers} == {each.worker for each in attempts if each.worker}
    assert sum(cell.arrivals for cell in found.arrivals.cells) == found.totals.counts.enqueued
    assert found.audit.passed
    assert found.lag.last_run_rows == len(facts)
