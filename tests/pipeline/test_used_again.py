"""Ids that are used again, once the job that had them was pruned or purged: each is one job, the latest."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.archiving import DAY, LATER
from tests.pipeline.exact import feed, rows_of
from tests.pipeline.lives import MINUTE, NOON, live

from taskharbor.core.contract import Driver
from taskharbor.core.model import JobFilter, NewJob, RetryUpdate, Settlement, Status
from taskharbor.pipeline import delta, run
from taskharbor.pipeline.archive import archive
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.ended_ids import EndedIds, digests
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import SILVER_JOBS
from taskharbor.pipeline.restore import restore
from taskharbor.pipeline.store import Selection

MONTH = timedelta(days=30)


def lead(driver: Driver, id: str, now: datetime, *ends: str, tenant: str = "default") -> None:
    """A life: the id is enqueued, and each attempt ends so, a minute after the one before."""
    driver.enqueue([NewJob("t", f'"{now}"'.encode(), id=id, tenant_id=tenant, queue="again")], now)
    for number, end in enumerate(ends):
        at = now + number * MINUTE
        [leased] = driver.reserve("again", now=at, lease_for=600, owner="w")
        held = (leased.job.id, leased.lease.token)
        match end:
            case "retry":
                settlement = Settlement.retry(*held, update=RetryUpdate(at, number + 1, "no", at))
            case "fail":
                settlement = Settlement.fail(*held, reason="no")
            case _:
                settlement = Settlement.ack(*held)
        driver.settle([settlement], now=at)


def let_go(driver: Driver) -> None:
    """What the archive and an operator do."""
    driver.purge(JobFilter(status=Status.DLQ))
    driver.prune(LATER)


def job_of(lake: Path, id: str) -> dict[str, Any]:
    [job] = [row for row in rows_of(lake, "silver/jobs") if row["job_id"] == id]
    return job


def attempts_of(lake: Path, id: str) -> int:
    return sum(row["job_id"] == id for row in rows_of(lake, "silver/attempts"))


def assert_sound(spark: SparkSession, lake: Path) -> None:
    assert [str(check) for check in audit_lake(spark, Lake(lake)) if not check.passed] == []
    assert all(row["passed"] for row in rows_of(lake, "gold/audit"))


FIRST = {"done": ("ack",), "died": ("fail",), "late": ("retry", "ack"), "tried": ("retry", "retry", "fail"), "none": ()}
SECOND = {"done": ("ack",), "died": ("fail",), "late": ("retry", "ack")}


def test_ids_used_again_in_later_batches_are_one_job_each_and_keep_all_their_attempts(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    driver, lake = sqlite_driver, tmp_path / "lake"
    lives = {f"{first} {second}": (FIRST[first], SECOND[second]) for first in FIRST for second in SECOND}
    live(driver)
    for id, (first, _) in lives.items():
        lead(driver, id, NOON, *first)
        if not first:
            driver.cancel(id, now=NOON)
    run(sqlite_url, lake, spark=spark)
    once = sum(row["enqueued"] for row in rows_of(lake, "gold/throughput") if row["grain"] == "day")
    let_go(driver)
    again = NOON + DAY
    for id, (_, second) in lives.items():
        lead(driver, id, again, *second)
    run(sqlite_url, lake, spark=spark, max_rows=15)
    for id, (first, second) in lives.items():
        job = job_of(lake, id)
        assert (id, job["attempts"], job["deliveries"]) == (id, len(second), len(second))
        assert (job["created_at"], job["first_started_at"]) == (again, again)
        assert (job["status"], job["state"]) == (("dlq", "dead") if "fail" in second else ("done", "final"))
        assert attempts_of(lake, id) == len(first) + len(second)
    twice = sum(row["enqueued"] for row in rows_of(lake, "gold/throughput") if row["grain"] == "day")
    assert twice == once + len(lives), "whatever was enqueued again counts again"
    assert_sound(spark, lake)
    live(driver, first=24)
    assert run(sqlite_url, lake, spark=spark).rows
    assert_sound(spark, lake)


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
def test_lives_of_one_batch_are_told_apart(spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    live(driver)
    for number, ends in enumerate([("fail",), ("retry", "fail"), ("retry", "retry", "ack")]):
        lead(driver, "x", NOON + number * DAY, *ends)
        driver.purge(JobFilter(status=Status.DLQ, queue="again"))
    lead(driver, "y", NOON, "retry", "retry", "fail")
    driver.purge(JobFilter(status=Status.DLQ, queue="again"))
    lead(driver, "y", NOON + DAY, "ack")
    run(store_url, lake, spark=spark)
    x, y = job_of(lake, "x"), job_of(lake, "y")
    assert (x["attempts"], x["deliveries"], x["created_at"]) == (3, 3, NOON + 2 * DAY)
    assert (y["attempts"], y["deliveries"], y["created_at"], y["status"]) == (1, 1, NOON + DAY, "done")
    assert (attempts_of(lake, "x"), attempts_of(lake, "y")) == (6, 4)
    assert_sound(spark, lake)


def test_a_job_that_is_sent_back_again_and_again_has_one_life(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lead(sqlite_driver, "x", NOON, "fail")
    run(sqlite_url, lake, spark=spark)
    for number in range(1, 4):
        at = NOON + number * DAY
        sqlite_driver.redrive(JobFilter(status=Status.DLQ), now=at, reset_attempts=True)
        [leased] = sqlite_driver.reserve("again", now=at, lease_for=600)
        held = (leased.job.id, leased.lease.token)
        end = Settlement.ack(*held) if number == 3 else Settlement.fail(*held, reason="no")
        sqlite_driver.settle([end], now=at)
        run(sqlite_url, lake, spark=spark)
    job = job_of(lake, "x")
    assert (job["attempts"], job["deliveries"], job["created_at"], job["status"]) == (4, 4, NOON, "done")
    assert sum(row["enqueued"] for row in rows_of(lake, "gold/throughput") if row["grain"] == "day") == 1
    assert_sound(spark, lake)


def test_a_batch_with_an_id_used_again_is_finished_by_the_next_run(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"

    class Killed(BaseException):
        pass

    lead(sqlite_driver, "x", NOON, "ack")
    run(sqlite_url, lake, spark=spark)
    let_go(sqlite_driver)
    lead(sqlite_driver, "x", NOON + DAY, "retry", "ack")
    for when in ("before", "after"):
        with monkeypatch.context() as patch:

            def die(moment: str, table: str, batch: int, when: str = when) -> None:
                if (moment, table) == (when, "silver/jobs"):
                    raise Killed

            patch.setattr(delta, "commit_point", die)
            with pytest.raises(Killed):
                run(sqlite_url, lake, spark=spark)
    run(sqlite_url, lake, spark=spark)
    assert (job_of(lake, "x")["attempts"], attempts_of(lake, "x")) == (2, 3)
    assert_sound(spark, lake)


def test_jobs_of_the_same_id_in_two_stores_are_two_jobs(
    spark: SparkSession,
    sqlite_driver: Driver,
    sqlite_url: str,
    postgres: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from taskharbor.cli import main
    from taskharbor.drivers import open_driver

    def told_of(url: str) -> str:
        assert main(["--url", url, "pipeline", "status", "--lake", str(lake)]) == 0
        return capsys.readouterr().out

    lake, url = tmp_path / "lake", postgres.create_database()
    with open_driver(url) as other:
        other.migrate()
        reports = []
        for driver, place in ((sqlite_driver, sqlite_url), (other, url)):
            lead(driver, "x", NOON, "ack")
            if reports:
                assert "nothing of this store yet" in told_of(place)
            reports.append(run(place, lake, spark=spark))
        let_go(other)
        lead(other, "x", NOON + DAY, "fail")
        reports.append(run(url, lake, spark=spark))
    assert [report.beside for report in reports] == [[], [reports[0].store_id], []]
    assert ["of another store" in told_of(each) for each in (sqlite_url, url)] == [True, False]
    assert sorted(row["status"] for row in rows_of(lake, "silver/jobs")) == ["dlq", "done"]
    assert_sound(spark, lake)


def test_a_selection_restores_the_latest_job_of_an_id_or_none(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    driver, lake = sqlite_driver, tmp_path / "lake"
    lead(driver, "x", NOON, "retry", "fail", tenant="first")
    driver.purge(JobFilter(status=Status.DLQ))
    lead(driver, "x", NOON + DAY, "ack", tenant="second")
    lead(driver, "y", NOON, "ack", tenant="first")
    run(sqlite_url, lake, spark=spark)
    archive(sqlite_url, lake, older_than=timedelta(0), spark=spark, now=LATER)
    lead(driver, "x", NOON + 2 * DAY, "retry", "ack", tenant="third")
    lead(driver, "y", NOON + 2 * DAY, "fail", tenant="third")
    driver.purge(JobFilter(status=Status.DLQ))
    run(sqlite_url, lake, spark=spark)
    archive(sqlite_url, lake, older_than=timedelta(0), spark=spark, now=LATER)
    assert not feed(driver)
    for selection in (Selection(tenant="first"), Selection(tenant="second"), Selection(until=NOON + 2 * DAY)):
        report = restore(sqlite_url, lake, selection=selection, spark=spark)
        assert (report.selected, report.restored) == (0, 0)
        assert report.earlier > 0
    report = restore(sqlite_url, lake, ids=["x", "y"], spark=spark)
    assert (report.restored, report.rows, report.missing) == (1, 2, ["y"])
    assert (driver.get("x").tenant_id, driver.get("x").deliveries) == ("third", 2)
    assert [each.delivery for each in driver.attempts("x")] == [1, 2]
    assert run(sqlite_url, lake, spark=spark).rows == 0


# --- What knows the ids -----------------------------------------------------------------------------------------------


def test_digests_depend_on_the_text_alone() -> None:
    letters = np.random.default_rng(7)
    texts = ["", "a", "b", "ab", "a" * 64, *(str(letters.integers(10**12)) for _ in range(500)), "grün", "a\x00"]
    texts = list(dict.fromkeys(texts))
    whole = digests(pa.chunked_array([texts[:100], texts[100:]]))
    assert len(set(whole.tolist())) == len(texts)
    alone = [int(digests(pa.array([text]))[0]) for text in texts]
    assert whole.tolist() == alone
    assert digests(pa.array([None, "a"]))[0] == digests(pa.array([""]))[0]
    assert digests(pa.array(texts).slice(3, 50)).tolist() == alone[3:53]


def test_ended_ids_are_found_however_many_batches_ago_and_come_back_when_lost(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create()
    for batch in range(1, 40):
        ids = EndedIds(lake, "s", batch)
        earlier = digests(pa.array([f"job-{number}" for number in range(1, batch)] or [""]))
        assert ids.known(earlier).all() == (batch > 1)
        assert not ids.known(digests(pa.array([f"job-{batch}"]))).any()
        ids.add(digests(pa.array([f"job-{batch}"])))
    files = list((lake.home / "ids").rglob("*.npy"))
    assert len(files) < 8
    for path in files:
        path.unlink()
    assert not EndedIds(lake, "s", 40).known(earlier).any(), "made again from silver/jobs, which is empty here"


def test_ids_of_a_lake_from_before_are_taken_from_silver(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lead(sqlite_driver, "x", NOON, "ack")
    live(sqlite_driver)
    run(sqlite_url, lake, spark=spark)
    for path in (lake / "_taskharbor" / "ids").rglob("*.npy"):
        path.unlink()
    let_go(sqlite_driver)
    lead(sqlite_driver, "x", NOON + DAY, "fail")
    run(sqlite_url, lake, spark=spark)
    assert job_of(lake, "x")["status"] == "dlq"
    assert_sound(spark, lake)


def test_a_large_batch_does_the_same(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from taskharbor.pipeline import bronze, runs

    monkeypatch.setattr(bronze, "SMALL_ROWS", 1)
    monkeypatch.setattr(runs, "SMALL_ROWS", 1)
    lake = tmp_path / "lake"
    for number, ends in enumerate([("retry", "fail"), ("retry", "ack")]):
        lead(sqlite_driver, "x", NOON + number * DAY, *ends)
        live(sqlite_driver, first=number)
        run(sqlite_url, lake, spark=spark)
        let_go(sqlite_driver)
    assert (job_of(lake, "x")["attempts"], attempts_of(lake, "x")) == (2, 4)
    assert_sound(spark, lake)
    assert delta.batch_of(Lake(lake), SILVER_JOBS, rows_of(lake, "silver/jobs")[0]["store_id"]) == 2
