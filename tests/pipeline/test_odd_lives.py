"""Lives that are not usual: sent back and failed again, held back by somebody's transaction, brought from elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.pipeline import seeds
from tests.pipeline.archiving import DAY, LATER, finished, grow
from tests.pipeline.exact import assert_exact, feed, rows_of
from tests.pipeline.lives import MINUTE, NOON, live
from tests.pipeline.pasts import Pasts

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput, StoreUnavailable
from taskharbor.core.model import JobFilter, NewJob, RetryUpdate, Settlement, Status
from taskharbor.drivers import open_driver
from taskharbor.pipeline import bronze, follow, import_jobs, run, runs, steps
from taskharbor.pipeline.archive import archive
from taskharbor.pipeline.archive_plan import ArchiveRefused
from taskharbor.pipeline.restore import restore
from taskharbor.pipeline.sink_values import plain
from taskharbor.testing.times import FakeClock
from taskharbor.worker.keeping import kept_by_lake
from taskharbor.worker.leader import Leader

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_job_that_died_was_sent_back_and_failed_again_in_one_batch_is_counted(
    spark: SparkSession,
    sqlite_driver: Driver,
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    large: bool,
) -> None:
    if large:
        monkeypatch.setattr(bronze, "SMALL_ROWS", 1)
        monkeypatch.setattr(runs, "SMALL_ROWS", 1)
    driver = sqlite_driver
    driver.enqueue([NewJob("t", b"{}", tenant_id="acme")], NOON)
    [leased] = driver.reserve("default", now=NOON, lease_for=60, owner="w-1")
    driver.settle([Settlement.fail(leased.job.id, leased.lease.token, reason="no")], now=NOON + MINUTE / 2)
    driver.redrive(JobFilter(status=Status.DLQ), now=NOON + 2 * MINUTE, reset_attempts=True)
    [again] = driver.reserve("default", now=NOON + 3 * MINUTE, lease_for=60, owner="w-1")
    update = RetryUpdate(NOON + 5 * MINUTE, 1, "no", NOON + 3 * MINUTE)
    driver.settle([Settlement.retry(again.job.id, again.lease.token, update=update)], now=NOON + 3 * MINUTE)
    run(sqlite_url, tmp_path / "lake", spark=spark)
    [tenant] = rows_of(tmp_path / "lake", "gold/tenants")
    assert (tenant["tenant_id"], tenant["jobs"], tenant["attempts"], str(tenant["day"])) == ("acme", 1, 2, "2031-05-01")
    assert_exact(driver, tmp_path / "lake")


def test_following_goes_on_with_a_batch_that_an_outage_left_half_way(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(sqlite_driver)
    carry, failed = steps.Steps.carry, []

    def fails_once(self: Any) -> Any:
        if self.batch.number == 2 and not failed:
            failed.append(self.batch)
            raise StoreUnavailable("gone for a moment")
        return carry(self)

    def on_report(report: runs.RunReport) -> bool:
        live(sqlite_driver, first=report.last_batch)
        return report.last_batch >= 3

    monkeypatch.setattr(steps.Steps, "carry", fails_once)
    follow(sqlite_url, tmp_path / "lake", spark=spark, every_s=0.05, on_report=on_report)
    assert failed
    assert {row["batch"] for row in rows_of(tmp_path / "lake", "gold/audit")} >= {1, 2, 3}
    run(sqlite_url, tmp_path / "lake", spark=spark)
    assert_exact(sqlite_driver, tmp_path / "lake")


def test_an_archive_does_not_vouch_for_rows_that_an_open_transaction_holds_back(
    spark: SparkSession, postgres: Any, tmp_path: Path
) -> None:
    url, lake = postgres.create_database(), tmp_path / "lake"
    with open_driver(url) as driver:
        driver.migrate()
        grow(driver)
        run(url, lake, spark=spark)
        with psycopg.connect(url) as somebody:
            somebody.execute("SELECT pg_current_xact_id()")
            live(driver, first=30)
            assert run(url, lake, spark=spark).rows == 0
            with pytest.raises(ArchiveRefused, match="because a transaction is open"):
                archive(url, lake, older_than=timedelta(days=30), spark=spark, now=LATER + timedelta(days=9))
            assert not (lake / "_taskharbor" / "archived.json").exists()
            before = len(finished(driver))
        run(url, lake, spark=spark)
        report = archive(url, lake, older_than=timedelta(days=30), spark=spark, now=LATER + timedelta(days=9))
        assert report.pruned == before - len(finished(driver)) > 0


def test_a_job_imported_later_with_an_old_date_is_not_pruned_before_the_lake_has_it(
    spark: SparkSession, past: Pasts
) -> None:
    driver, url, lake = past(live)
    [added] = driver.enqueue([NewJob("late", b"{}", queue="late")], NOON)
    [leased] = driver.reserve("late", now=NOON, lease_for=60)
    driver.ack(leased.job.id, leased.lease.token, now=NOON)
    with pytest.raises(ArchiveRefused, match="none of 1 rows"):
        archive(url, lake, older_than=30 * DAY, spark=spark, now=LATER)
    assert driver.get(added.id).status is Status.DONE


def test_retention_leaves_what_was_imported_behind_an_archive_however_old_it_is(
    spark: SparkSession, past: Pasts, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, url, lake = past(live)
    archive(url, lake, older_than=30 * DAY, spark=spark, now=LATER)
    [late] = driver.enqueue([NewJob("late", b"{}", queue="late")], NOON)
    [leased] = driver.reserve("late", now=NOON, lease_for=60)
    driver.ack(leased.job.id, leased.lease.token, now=NOON)
    monkeypatch.setenv("TASKHARBOR_LAKE", str(lake))
    clock = FakeClock(LATER)

    def lead() -> None:
        leader = Leader(driver, "w", retention=30 * DAY, vouched=kept_by_lake(driver), monotonic=clock.monotonic)
        leader.step(clock.now())
        leader.stop()

    lead()
    assert driver.get(late.id).status is Status.DONE
    run(url, lake, spark=spark)
    archive(url, lake, older_than=30 * DAY, spark=spark, now=LATER, dry_run=True)
    lead()
    assert driver.get(late.id).status is Status.DONE, "nobody has compared it yet"
    assert archive(url, lake, older_than=30 * DAY, spark=spark, now=LATER).pruned == 1


def test_what_was_archived_comes_back_through_a_path_with_dots(
    spark: SparkSession, past: Pasts, tmp_path: Path
) -> None:
    driver, url, _lake = past(live)
    lake = tmp_path / "aside" / ".." / "lake"
    (tmp_path / "aside").mkdir()
    live(driver, first=1)
    run(url, lake, spark=spark)
    gone = archive(url, lake, older_than=timedelta(days=30), spark=spark, now=LATER).pruned
    back = restore(url, lake, ids=[row["job_id"] for row in rows_of(lake, "silver/jobs")], spark=spark)
    assert back.restored == gone > 0


@pytest.mark.parametrize("name", ["a[1]", "b{2}", "c%20d", "e*"])
def test_a_lake_whose_path_would_be_taken_for_a_pattern_is_refused(sqlite_url: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="the path of a lake cannot have"):
        run(sqlite_url, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_the_history_of_every_other_system_goes_into_the_lake(
    spark: SparkSession, postgres: Any, tmp_path: Path
) -> None:
    for format, script in (
        ("mq-sql", seeds.MQ_POSTGRES),
        ("taskharbor-go", seeds.TASKHARBOR_GO),
        ("task-orchestrator", seeds.TASK_ORCHESTRATOR),
        ("jobs-json", None),
    ):
        source = seeds.jobs_file(tmp_path) if script is None else seeds.fill(postgres.create_database(), script)
        url, lake = postgres.create_database(), tmp_path / format
        with open_driver(url) as driver:
            driver.migrate()
            import_jobs(format, source, url, rejects=str(tmp_path / "rejects"))
            report = run(url, lake, spark=spark)
            facts = feed(driver)
            assert (report.rejected, report.rows) == (0, len(facts))
            assert len(rows_of(lake, "silver/attempts")) == sum(1 for each in facts if each.attempt)
            assert {row["job_id"] for row in rows_of(lake, "silver/jobs")} == {each.job_id for each in facts}


def test_a_moment_in_a_payload_is_the_same_text_in_every_zone() -> None:
    moment = datetime(2031, 5, 1, 12, tzinfo=UTC)
    assert plain(moment) == plain(moment.astimezone(timezone(timedelta(hours=-5)))) == "2031-05-01T12:00:00+00:00"
