"""The archive prunes what the lake has for sure, nothing else, and can be killed at any moment."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.archiving import (
    DAY,
    LATER,
    MONTH,
    archive_old,
    finished,
    grow,
    lives_of,
    manifests_of,
    mark_of,
    rewrite_bronze,
)
from tests.pipeline.exact import feed, rows_of
from tests.pipeline.lives import MINUTE, NOON, live
from tests.pipeline.pasts import Pasts

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import JobFilter, NewJob, Status
from taskharbor.drivers import open_driver
from taskharbor.pipeline import archive as archives
from taskharbor.pipeline import archive_rows, run
from taskharbor.pipeline.archive import archive
from taskharbor.pipeline.archive_plan import ArchiveRefused
from taskharbor.pipeline.audit import audit_lake
from taskharbor.pipeline.lake import Lake, LakeCorrupt, NotALake
from taskharbor.pipeline.lock import LakeLock, LakeLocked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """As if the process had ended here: nothing catches it on its way."""


def test_old_jobs_go_once_the_lake_has_them_and_all_others_stay(spark: SparkSession, past: Pasts) -> None:
    """`test_archive_restore` has the same on every store."""
    driver, url, lake = past(grow)
    archive_old(spark, driver, url, lake)
    again = archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert (again.jobs, len(manifests_of(lake))) == (0, 1)
    live(driver, first=24 * 39 + 1)
    run(url, lake, spark=spark)
    assert all(check.passed for check in audit_lake(spark, Lake(lake)))


def test_jobs_in_the_dlq_stay_and_the_history_of_purged_ones_goes(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live, rounds=2)
    dead = [job.id for job in driver.list(JobFilter(status="dlq")).jobs]
    driver.purge(JobFilter(ids=dead[:1]))
    report = archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert report.by_status["purged"] == 1
    assert "dlq" not in report.by_status
    assert driver.get(dead[1]).status is Status.DLQ
    assert len(driver.attempts(dead[1])) == 1
    assert dead[0] not in {fact.job_id for fact in feed(driver)}


@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
def test_what_is_too_much_for_the_driver_is_read_and_compared_by_executors(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(driver)
    run(store_url, tmp_path / "lake", spark=spark)
    few = archive(store_url, tmp_path / "lake", older_than=MONTH, spark=spark, now=LATER, dry_run=True)
    monkeypatch.setattr(archive_rows, "FEW_ROWS", 2)
    monkeypatch.setattr(archive_rows, "FEW_WIDE_ROWS", 2)
    many = archive(store_url, tmp_path / "lake", older_than=MONTH, spark=spark, now=LATER)
    assert (many.jobs, many.rows, many.days) == (few.jobs, few.rows, few.days)
    assert many.pruned == few.jobs


def test_a_dry_run_compares_and_changes_nothing(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(grow)
    before = feed(driver)
    report = archive(url, lake, older_than=MONTH, spark=spark, now=LATER, dry_run=True)
    assert report.jobs > 0
    assert report.pruned == 0
    assert [day["store"] for day in report.days] == [day["lake"] for day in report.days]
    assert feed(driver) == before
    assert (manifests_of(lake), mark_of(lake)) == ([], {})


# --- When the lake is not good enough -------------------------------------------------------------------------------


def test_a_lake_that_is_behind_lets_nothing_go(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live)
    missing = len(feed(driver))
    live(driver, first=1)
    before = feed(driver)
    missing = len(before) - missing
    with pytest.raises(ArchiveRefused, match=rf"none of {missing} rows .*\({missing} of 2031-05-01\).*pipeline run"):
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert feed(driver) == before
    assert mark_of(lake) == {}
    # What the lake lacks is younger than the bound: that is in order.
    report = archive(url, lake, older_than=LATER - NOON - 30 * MINUTE, spark=spark, now=LATER)
    assert report.pruned > 0


def test_a_store_that_the_lake_does_not_know_is_refused(spark: SparkSession, past: Pasts, tmp_path: Path) -> None:
    _driver, url, lake = past(live)
    with pytest.raises(NotALake, match="no lake"):
        archive(url, tmp_path / "elsewhere", older_than=MONTH, spark=spark, now=LATER)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    driver = open_driver(other)
    driver.migrate()
    live(driver)
    with pytest.raises(ArchiveRefused, match="has nothing of this store"):
        archive(other, lake, older_than=MONTH, spark=spark, now=LATER)
    assert finished(driver)
    driver.close()


def _tampered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    payloads = [row for row in rows if row["final"]]
    payloads[0]["payload"] = b'{"n": 1000}'
    return rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[1:], r"2031-05-01: the store has \d+ rows, bronze has \d+ of them.*such as job"),
        (lambda rows: [*rows, rows[0]], r"2031-05-01: the store has \d+ rows, bronze has \d+"),
        (_tampered, r"2031-05-01: \d+ rows on both sides, but bronze has other content \(checksum"),
    ],
    ids=["a row is missing", "a row is there twice", "a payload differs"],
)
def test_a_lake_that_differs_lets_nothing_go(spark: SparkSession, past: Pasts, change: Any, said: str) -> None:
    driver, url, lake = past(live)
    before = feed(driver)
    rewrite_bronze(
        lake, lambda rows: change([row for row in rows if row["final"]] + [r for r in rows if not r["final"]])
    )
    with pytest.raises(ArchiveRefused, match=said):
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert feed(driver) == before
    assert mark_of(lake) == {}
    [manifest] = manifests_of(lake)
    assert manifest["state"] == "planned"
    assert "2031-05-01" in manifest["problem"]


def test_a_silver_table_that_lost_attempts_lets_nothing_go(spark: SparkSession, past: Pasts) -> None:
    from deltalake import DeltaTable

    driver, url, lake = past(live)
    DeltaTable(str(lake / "silver/attempts")).delete("outcome = 'succeeded'")
    before = feed(driver)
    with pytest.raises(ArchiveRefused, match=r"attempts, silver has \d+ of them"):
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert feed(driver) == before


def test_an_archive_and_a_run_at_once_refuse_each_other(spark: SparkSession, past: Pasts) -> None:
    _driver, url, lake = past(live)
    with LakeLock(Lake(lake)), pytest.raises(LakeLocked):
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    seen = []

    def busy(name: str) -> None:
        if name == "pruning":
            for attempt in (
                lambda: run(url, lake, spark=spark),
                lambda: archive(url, lake, older_than=MONTH, spark=spark, now=LATER),
            ):
                with pytest.raises(LakeLocked):
                    attempt()
                seen.append(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "archive_point", busy)
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert len(seen) == 2


def test_a_manifest_that_is_torn_stops_the_archive(spark: SparkSession, past: Pasts) -> None:
    driver, url, lake = past(live)
    (lake / "_taskharbor" / "manifests" / "archive-x.json").write_text('{"state": "pruning"}')
    before = feed(driver)
    with pytest.raises(LakeCorrupt, match=r"archive-x\.json cannot be understood"):
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert feed(driver) == before


# --- Killed anywhere ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", ["planned", "verified", "marked", "pruning", "pruned", "done"])
def test_an_archive_killed_at_any_step_is_finished_by_the_next_one(
    spark: SparkSession,
    past: Pasts,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    driver, url, lake = past(grow)
    old = {id for id, job in finished(driver).items() if job.completed_at and job.completed_at < LATER - MONTH}
    rest = {job.id for job in driver.list(limit=1000).jobs} - old
    count = len(rows_of(lake, "bronze/history"))

    def die(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(archives, "archive_point", die)
        with pytest.raises(Killed):
            archive(url, lake, older_than=MONTH, spark=spark, now=LATER, batch=2)
    left = old & set(finished(driver))
    assert len(old - left) == {"pruned": 2, "done": len(old)}.get(point, 0)
    report = archive(url, lake, older_than=MONTH, spark=spark, now=LATER, batch=2)
    assert report.pruned == len(left)
    assert {job.id for job in driver.list(limit=1000).jobs} == rest
    [manifest] = manifests_of(lake)
    assert (manifest["state"], manifest["jobs"], manifest["pruned"]) == ("done", len(old), len(old))
    assert len(report.finished) == (point in ("verified", "marked", "pruning", "pruned"))
    assert [mark["before"] for mark in mark_of(lake).values()] == [(LATER - MONTH).isoformat()]
    assert len(rows_of(lake, "bronze/history")) == count


def test_what_an_interrupted_archive_left_is_verified_again(
    spark: SparkSession, past: Pasts, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, url, lake = past(live, rounds=2)

    def die(name: str) -> None:
        if name == "pruned":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(archives, "archive_point", die)
        with pytest.raises(Killed):
            archive(url, lake, older_than=MONTH, spark=spark, now=LATER, batch=1)
    before = feed(driver)
    rewrite_bronze(lake, lambda rows: rows[:2])
    with pytest.raises(ArchiveRefused, match="does not have what the store has"):
        archive(url, lake, older_than=MONTH, spark=spark, now=LATER)
    assert feed(driver) == before


def test_a_large_archive_goes_manifest_by_manifest_and_vouches_for_all_at_the_end(
    spark: SparkSession, past: Pasts, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, url, lake = past(live, rounds=2)
    marks = []
    monkeypatch.setattr(archives, "archive_point", lambda name: marks.append((name, bool(mark_of(lake)))))
    report = archive(url, lake, older_than=MONTH, spark=spark, now=LATER, most=10)
    assert len(report.manifests) == len(manifests_of(lake)) == 2
    assert report.jobs == report.pruned == sum(each["jobs"] for each in manifests_of(lake))
    assert not finished(driver)
    assert [known for name, known in marks if name == "done"] == [False, True]


# --- The command ----------------------------------------------------------------------------------------------------


def _past(driver: Driver) -> None:
    """Two jobs that ended forty days ago, and one that did just now."""
    now = datetime.now(UTC)
    for moment in (now - timedelta(days=40), now - timedelta(days=40), now - timedelta(minutes=5)):
        driver.enqueue([NewJob("t", b"{}")], moment)
        [leased] = driver.reserve("default", now=moment, lease_for=60)
        driver.ack(leased.job.id, leased.lease.token, now=moment)


def test_the_command_archives_and_restores(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _past(sqlite_driver)
    lake = str(tmp_path / "lake")
    run(sqlite_url, lake, spark=spark)
    words = ["--url", sqlite_url, "pipeline", "archive", "--lake", lake, "--master", "local[1]"]
    old = sorted(finished(sqlite_driver))[:2]
    before = lives_of(sqlite_driver, old)
    assert main([*words, "--older-than", "30d", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "2 jobs would be pruned" in said
    assert re.search(r"^day +in the store +in the lake +compared +checksum$", said, re.MULTILINE)
    assert main([*words, "--older-than", "30d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pruned"] == 2
    assert len(finished(sqlite_driver)) == 1
    assert main([*words, "--older-than", "30d"]) == 0
    assert "nothing ended before" in capsys.readouterr().out
    assert main([*words, "--restore", *old, "--dry-run"]) == 0
    heading, _, counts = capsys.readouterr().out.splitlines()[:3]
    assert re.fullmatch(r"in the lake +would come back +there already +rows that would come", heading)
    assert counts.split() == ["2", "2", "0", "2"]
    assert main([*words, "--restore", old[0], "nobody"]) == 1
    said = capsys.readouterr()
    assert "the lake has no finished job nobody" in said.err
    assert main([*words, "--restore", "--until", "1d", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["selected"], found["restored"], found["known"]) == (2, 1, 1)
    assert lives_of(sqlite_driver, old) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to archive"),
        (["ID"], "only with --restore"),
        (["--older-than", "30d", "--queue", "mail"], "only with --restore"),
        (["--restore"], "say what to restore"),
        (["--restore", "ID", "--all"], "only one of these"),
        (["--restore", "--all", "--older-than", "30d"], "--since and --until"),
        (["--restore", "--since", "yesterday"], "must be a time"),
        (["--older-than", "soon"], "not a duration"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["--url", sqlite_url, "pipeline", "archive", "--lake", str(tmp_path / "lake"), *words]) == 2
    assert said in capsys.readouterr().err


def test_an_archive_of_the_future_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="negative"):
        archive(sqlite_url, tmp_path / "lake", older_than=-DAY)
    shutil.rmtree(tmp_path / "lake", ignore_errors=True)
