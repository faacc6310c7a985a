"""Gold adds up: parts of several batches give what one batch would, and percentiles are near the true ones."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.lives import NOON

from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline.gold import GoldTable, News, gold_tables, merged
from taskharbor.pipeline.lake_schemas import ATTEMPTS, JOBS
from taskharbor.pipeline.slo import DEFAULT, Objective, read_objectives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = {table.spec.name.partition("/")[2]: table for table in gold_tables()}


def _attempt(number: int, **given: Any) -> dict[str, Any]:
    end = NOON + timedelta(minutes=7 * number)
    made: dict[str, Any] = dict.fromkeys(ATTEMPTS.fieldNames()) | {
        "store_id": "s", "job_id": str(number), "type": "t", "queue": "q", "tenant_id": "a", "outcome": "succeeded",
        "status": "done", "success": True, "burned": False, "worker": "w", "waited_s": 1.0, "ran_s": 2.0,
        "started_at": end - timedelta(seconds=2), "finished_at": end, "day": end.date(),
    }  # fmt: skip
    return made | given


def _job(number: int) -> dict[str, Any]:
    made = NOON + timedelta(hours=number)
    return dict.fromkeys(JOBS.fieldNames()) | {
        "store_id": "s", "job_id": str(number), "type": "t", "queue": "q", "tenant_id": "a", "created_at": made,
        "ended_at": made + timedelta(hours=1),
    }  # fmt: skip


def _news(spark: SparkSession, attempts: list[dict[str, Any]], jobs: list[dict[str, Any]], **more: Any) -> News:
    return News("s", spark.createDataFrame(attempts, ATTEMPTS), spark.createDataFrame(jobs, JOBS), **more)


def _rows(table: GoldTable, frame: DataFrame) -> list[dict[str, Any]]:
    found = [row.asDict(recursive=True) for row in frame.select(*table.spec.schema.fieldNames()).collect()]
    rounded = [{key: round(v, 9) if isinstance(v, float) else v for key, v in row.items()} for row in found]
    return sorted(rounded, key=repr)


def _mixed(count: int) -> list[dict[str, Any]]:
    dice = random.Random(7)
    made = []
    for number in range(count):
        outcome = dice.choice(["succeeded", "succeeded", "retried", "dead", "lapsed", "snoozed"])
        burned = outcome in ("retried", "dead", "lapsed")
        made.append(
            _attempt(
                number,
                outcome=outcome,
                success=outcome == "succeeded",
                burned=burned,
                status="dlq" if outcome == "dead" else "done",
                error=f"E {number}" if burned else None,
                error_class="E" if burned else None,
                fingerprint=f"f{number % 2}" if burned else None,
                tenant_id=dice.choice("abc"),
                waited_s=dice.random() * 100,
                ran_s=dice.random() * 5,
            )
        )
    return made


@pytest.mark.parametrize("name", TABLES)
def test_two_batches_add_up_to_what_one_would_give(spark: SparkSession, name: str) -> None:
    table = TABLES[name]
    attempts, jobs = _mixed(40), [_job(number) for number in range(40)]
    at_once = merged(table, _news(spark, attempts, jobs), None)
    first = merged(table, _news(spark, attempts[:23], jobs[:11]), None)
    second = merged(table, _news(spark, attempts[23:], jobs[11:]), first)
    assert _rows(table, second) == _rows(table, at_once)


def test_percentiles_are_within_three_per_cent_and_the_greatest_is_exact(spark: SparkSession) -> None:
    dice = random.Random(3)
    waits = [dice.expovariate(0.2) + 0.01 for _ in range(2000)]
    attempts = [_attempt(0, waited_s=wait, ran_s=0.0) for wait in waits]
    frame = merged(TABLES["latency"], _news(spark, attempts, []), None).where("grain = 'hour'")
    (row,) = frame.collect()
    for share, name in ((50, "p50"), (90, "p90"), (95, "p95"), (99, "p99")):
        true = sorted(waits)[len(waits) * share // 100 - 1]
        assert row[f"wait_{name}_s"] == pytest.approx(true, rel=0.03)
    assert row["wait_max_s"] == max(waits)
    assert (row["run_p50_s"], row["run_max_s"], row["attempts"]) == (0.0, 0.0, 2000)


def test_a_tenant_that_takes_most_of_the_day_is_noisy(spark: SparkSession) -> None:
    quiet = [_attempt(0, tenant_id=name, ran_s=1.0) for name in "abcdefgh"]
    frame = merged(TABLES["tenants"], _news(spark, [*quiet, _attempt(0, tenant_id="loud", ran_s=92.0)], []), None)
    assert {row["tenant_id"] for row in frame.collect() if row["noisy"]} == {"loud"}
    assert sum(row["share"] for row in frame.collect()) == pytest.approx(1.0)


def test_objectives_are_judged_by_the_first_that_fits(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "slo.toml"
    file.write_text('[default]\nwait_s = 10\n[[objective]]\nqueue = "q"\nwait_s = 0.5\nwait_target = 0.9\n')
    objectives = read_objectives(file)
    attempts = [
        _attempt(0, waited_s=0.4),
        _attempt(0),
        _attempt(0, queue="other"),
        _attempt(0, queue="other", waited_s=11.0),
    ]
    frame = merged(TABLES["slo"], _news(spark, attempts, [], objectives=objectives), None).where("objective = 'wait'")
    found = {
        row["queue"]: (row["threshold_s"], row["attainment"], round(row["burn_rate"], 6)) for row in frame.collect()
    }
    assert found == {"q": (0.5, 0.5, 5.0), "other": (10.0, 0.5, 50.0)}
    assert read_objectives(file)[-1] == Objective(wait_s=10.0)
    assert DEFAULT[-1].queue is None


@pytest.mark.parametrize(
    "text", ["[[", "[defaults]", "[default]\nwait_s = -1", "[default]\nwait_target = 1", "[objective]"]
)
def test_objectives_that_make_no_sense_are_wrong_usage(tmp_path: Path, text: str) -> None:
    (tmp_path / "slo.toml").write_text(text)
    with pytest.raises(InvalidInput, match=r"slo\.toml"):
        read_objectives(tmp_path / "slo.toml")


def test_arrivals_are_placed_in_the_hour_of_their_week(spark: SparkSession) -> None:
    (row,) = merged(TABLES["arrivals"], _news(spark, [], [_job(0)]), None).collect()
    # The first of May 2031 is a Thursday.
    assert (row["weekday"], row["hour"], row["hour_of_week"], row["arrivals"]) == (3, 12, 84, 1)
    assert row["day"].isoformat() == "2031-04-28"


def test_a_worker_is_as_busy_as_its_attempts_and_crashes_count(spark: SparkSession) -> None:
    attempts = [_attempt(0, ran_s=2.0), _attempt(1, ran_s=209.0, outcome="retried", success=False, burned=True)]
    (row,) = merged(TABLES["workers"], _news(spark, attempts, []), None).collect()
    assert row["span_s"] == 7 * 60 + 2
    assert row["busy_share"] == pytest.approx(211 / 422)
    assert (row["crash_rate"], row["attempts"], row["succeeded"]) == (0.0, 2, 1)


def test_what_a_lost_worker_held_makes_it_neither_busy_nor_alive_for_longer(spark: SparkSession) -> None:
    # It has run one job for two seconds, and was lost with forty more that it had fetched.
    lost = {"outcome": "lapsed", "success": False, "burned": True, "started_at": NOON - timedelta(seconds=1)}
    end = NOON + timedelta(minutes=9)
    held = [_attempt(0, job_id=str(number), finished_at=end, ran_s=500.0, **lost) for number in range(40)]
    (row,) = merged(TABLES["workers"], _news(spark, [_attempt(0, ran_s=2.0), *held], []), None).collect()
    assert (row["busy_s"], row["span_s"], row["busy_slots"], row["last_at"].hour) == (2.0, 2.0, 1.0, 12)
    assert (row["attempts"], row["lapsed"]) == (41, 40)


def test_a_crash_loop_is_a_death_in_throughput_as_in_failures(spark: SparkSession) -> None:
    lapse = {"outcome": "lapsed", "success": False, "burned": True, "error": "E", "fingerprint": "f"}
    attempts = [
        _attempt(0, **lapse, status="dlq"),
        _attempt(0, **lapse, status="ready"),
        _attempt(0, **lapse | {"outcome": "dead"}, status="dlq"),
    ]
    frame = merged(TABLES["throughput"], _news(spark, attempts, []), None).where("grain = 'day'")
    (row,) = frame.collect()
    assert (row["started"], row["dead"], row["lapsed"], row["other"]) == (3, 2, 1, 0)
    (failure,) = merged(TABLES["failures"], _news(spark, attempts, []), None).collect()
    assert (failure["failures"], failure["dead"]) == (3, 2)


@pytest.mark.parametrize("name", TABLES)
def test_no_python_function_is_on_the_way_to_gold(spark: SparkSession, name: str) -> None:
    table = TABLES[name]
    news = _news(spark, _mixed(3), [_job(1)])
    old = merged(table, news, None)
    plan = merged(table, news, old)._jdf.queryExecution().toString()
    assert "Python" not in plan
    assert "MapInArrow" not in plan
