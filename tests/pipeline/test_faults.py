"""Killed anywhere, a run is finished by the next one: nothing is lost and nothing doubled."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from deltalake import DeltaTable
from tests.pipeline.exact import assert_exact, feed, rows_of, versions
from tests.pipeline.lives import live
from tests.pipeline.pasts import Pasts

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreUnavailable
from taskharbor.drivers import open_driver
from taskharbor.pipeline import bronze, delta, follow, run, runs, silver
from taskharbor.pipeline.lake_schemas import TABLES
from taskharbor.pipeline.runs import RunReport
from taskharbor.testing.servers import postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = {(when, table) for table in TABLES for when in ("before", "after") if table != "silver/rejects"}
GOLD = sorted(table for table in TABLES if table.startswith("gold/") and table != "gold/audit")


class Killed(BaseException):
    """As if the process had ended here: nothing catches it on its way."""


@pytest.mark.timeout(900)
def test_a_run_killed_at_any_commit_is_finished_by_the_next_one(
    spark: SparkSession, past: Pasts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is killed where none was yet, and begins with what the one before it had left."""
    driver, url, lake = past(live)
    live(driver, first=1)
    left = set(POINTS)

    def die(when: str, table: str, batch: int) -> None:
        if (when, table) in left:
            left.remove((when, table))
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delta, "commit_point", die)
        while left:
            before = len(left)
            with pytest.raises(Killed):
                run(url, lake, spark=spark)
            assert len(left) < before
            if ("before", "gold/audit") in left:
                assert len({row["batch"] for row in rows_of(lake, "gold/audit")}) == 1
    run(url, lake, spark=spark)
    assert_exact(driver, lake)
    assert len({row["batch"] for row in rows_of(lake, "gold/audit")}) == 2


@pytest.mark.timeout(900)
def test_a_table_of_gold_that_alone_is_left_behind_catches_up(
    spark: SparkSession, past: Pasts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them in turn: a run first finishes the batch that the one before it had left without one table, and dies
    over the next batch and the next table."""
    driver, url, lake = past(live)
    for number, table in enumerate(GOLD, start=2):
        live(driver, first=number - 1)

        def die(when: str, name: str, batch: int, left: Any = (table, number)) -> None:
            if when == "before" and (name, batch) == left:
                raise Killed

        heard: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(delta, "commit_point", die)
            with pytest.raises(Killed):
                run(url, lake, spark=spark, progress=heard.append)
        half_way = [stage for stage in heard if "an earlier run left it half-way" in stage]
        assert half_way == ([] if number == 2 else [f"batch {number - 1}: an earlier run left it half-way"])
        behind = {
            name: DeltaTable(str(lake / name)).transaction_version(delta.app_id(_store_id(lake))) for name in GOLD
        }
        assert behind == {name: number - (name == table) for name in GOLD}
    assert run(url, lake, spark=spark).recovered
    assert_exact(driver, lake)


def _store_id(lake: Path) -> str:
    found: str = rows_of(lake, "gold/audit")[0]["store_id"]
    return found


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_at_the_commit_of_its_rejects_keeps_each_of_them_once(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, when: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(silver, "OUTCOMES", tuple(name for name in silver.OUTCOMES if name != "snoozed"))
    live(sqlite_driver)

    def die(now: str, name: str, batch: int) -> None:
        if (now, name) == (when, "silver/rejects"):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delta, "commit_point", die)
        with pytest.raises(Killed):
            run(sqlite_url, tmp_path / "lake", spark=spark)
    assert run(sqlite_url, tmp_path / "lake", spark=spark).recovered
    attempts = [row for row in feed(sqlite_driver) if row.attempt]
    assert len(rows_of(tmp_path / "lake", "silver/rejects")) == 1
    assert len(rows_of(tmp_path / "lake", "silver/attempts")) == len(attempts) - 1
    by_day = [row["started"] for row in rows_of(tmp_path / "lake", "gold/throughput") if row["grain"] == "day"]
    assert sum(by_day) == len(attempts) - 1


@pytest.mark.process
def test_a_driver_process_that_is_gone_at_once_leaves_a_lake_that_goes_on(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path
) -> None:
    live(sqlite_driver, rounds=2)
    script = f"""
import os
from taskharbor.pipeline import delta, run, session
def die(when, table, batch):
    if (when, table) == ("before", "gold/latency"):
        os._exit(9)
delta.commit_point = die
run({sqlite_url!r}, {str(tmp_path / "lake")!r}, spark=session("local[1]"))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 9, ended.stderr
    report = run(sqlite_url, tmp_path / "lake", spark=spark)
    assert report.recovered
    assert_exact(sqlite_driver, tmp_path / "lake")


def test_a_history_row_that_is_committed_late_is_not_lost(
    spark: SparkSession, postgres: object, tmp_path: Path
) -> None:
    url = postgres.create_database()  # type: ignore[attr-defined]
    driver = open_driver(url)
    driver.migrate()
    live(driver)
    columns = "at, due_at, claimed_at, started_at, created_at, priority, attempt_no, delivery, max_attempts, final"
    more = "type, queue, tenant_id, outcome, status, lease_owner, payload"
    with psycopg.connect(url) as late:
        late.execute(
            f"INSERT INTO th_history ({columns}, {more}, job_id, lease_token) "
            f"SELECT {columns}, {more}, 'late', '\\x00ff' FROM th_history "
            "WHERE final AND attempt_no = 1 AND delivery = 1 LIMIT 1"
        )
        live(driver, first=1)
        run(url, tmp_path / "lake", spark=spark)
        assert "late" not in {row["job_id"] for row in rows_of(tmp_path / "lake", "bronze/history")}
        late.commit()
    # Whatever else runs on the server holds the feed back, but not for long.
    for _ in range(100):
        run(url, tmp_path / "lake", spark=spark)
        if len(rows_of(tmp_path / "lake", "bronze/history")) == len(feed(driver)):
            break
        time.sleep(0.1)
    assert "late" in {row["job_id"] for row in rows_of(tmp_path / "lake", "silver/jobs")}
    assert_exact(driver, tmp_path / "lake")
    driver.close()


@pytest.mark.server
def test_a_store_that_was_restarted_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    with postgres_server(fast=True) as server:
        url = server.create_database()
        driver = open_driver(url)
        driver.migrate()
        live(driver)
        run(url, tmp_path / "lake", spark=spark)
        before = versions(tmp_path / "lake")
        server.stop()
        with pytest.raises(StoreUnavailable):
            run(url, tmp_path / "lake", spark=spark)
        assert versions(tmp_path / "lake") == before
        server.start()
        driver.close()
        driver = open_driver(url)
        live(driver, first=1)
        run(url, tmp_path / "lake", spark=spark)
        assert_exact(driver, tmp_path / "lake")
        driver.close()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few rows go the way of large ones."""
    monkeypatch.setattr(bronze, "SMALL_ROWS", 5)
    monkeypatch.setattr(runs, "SMALL_ROWS", 5)


def test_a_large_batch_is_read_by_executors_and_arrives_once(
    spark: SparkSession, driver: Driver, store_url: str, tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    by_executors = bronze._write_by_executors
    monkeypatch.setattr(
        bronze, "_write_by_executors", lambda *words: asked.append(len(words[2])) or by_executors(*words)
    )
    live(driver, rounds=3)
    assert run(store_url, tmp_path / "lake", spark=spark).batches == 1
    assert_exact(driver, tmp_path / "lake")
    # The store in files is for one process, so the driver reads it alone, however much there is.
    assert asked == ([] if store_url.startswith("json") else [4])


def test_after_a_run_the_session_is_the_callers_again(spark: SparkSession, past: Pasts) -> None:
    driver, url, _lake = past(live)
    assert type(spark).getActiveSession() is spark
    there = sum(driver.counts().values())
    frame = spark.range(3).selectExpr("to_json(struct(id)) AS payload")
    frame.write.format("taskharbor").mode("append").options(url=url, type="t").save()
    assert sum(driver.counts().values()) == there + 3


@pytest.mark.server
@pytest.mark.parametrize("rows", ["small", "large"])
def test_a_store_that_is_restarted_in_the_midst_of_a_run_loses_nothing(
    spark: SparkSession, tmp_path: Path, rows: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rows == "large":
        request.getfixturevalue("large")
    with postgres_server() as server:
        url = server.create_database()
        with open_driver(url) as driver:  # type: ignore[attr-defined]
            driver.migrate()
            live(driver, rounds=2)

        def away(stage: str) -> None:
            if stage.endswith("bronze"):
                server.kill()

        with pytest.raises(StoreUnavailable):
            run(url, tmp_path / "lake", spark=spark, progress=away)
        assert rows_of(tmp_path / "lake", "bronze/history") == []
        server.start()

        def restarted(when: str, table: str, batch: int) -> None:
            if (when, table) == ("after", "bronze/history"):
                server.restart()

        with monkeypatch.context() as patch:
            patch.setattr(delta, "commit_point", restarted)
            try:
                run(url, tmp_path / "lake", spark=spark)
            except StoreUnavailable:
                assert rows_of(tmp_path / "lake", "gold/audit") == []
        run(url, tmp_path / "lake", spark=spark)
        with open_driver(url) as driver:  # type: ignore[attr-defined]
            assert_exact(driver, tmp_path / "lake")


@pytest.mark.server
def test_following_waits_for_a_store_that_is_restarted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server() as server:
        url = server.create_database()
        driver = open_driver(url)
        driver.migrate()
        live(driver)
        heard: list[str] = []
        back = threading.Timer(1.0, server.start)

        def progress(stage: str) -> None:
            heard.append(stage)
            if stage == "batch 2: bronze" and heard.count(stage) == 1:
                server.kill()
                back.start()

        def on_report(report: RunReport) -> bool:
            if report.last_batch == 1:
                live(driver, first=1)
            return report.last_batch == 2

        follow(url, tmp_path / "lake", spark=spark, every_s=0.1, on_report=on_report, progress=progress)
        back.join()
        assert any("cannot be reached" in stage for stage in heard)
        driver.close()
        with open_driver(url) as again:  # type: ignore[attr-defined]
            assert_exact(again, tmp_path / "lake")


def test_a_batch_whose_first_half_is_there_already_is_not_taken_in_twice(
    spark: SparkSession, sqlite_driver: Driver, sqlite_url: str, tmp_path: Path, large: None, monkeypatch: Any
) -> None:
    live(sqlite_driver, rounds=2)

    def die(when: str, table: str, batch: int) -> None:
        if (when, table) == ("after", "gold/failures"):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delta, "commit_point", die)
        with pytest.raises(Killed):
            run(sqlite_url, tmp_path / "lake", spark=spark)
    before = versions(tmp_path / "lake")
    assert run(sqlite_url, tmp_path / "lake", spark=spark).recovered
    after = versions(tmp_path / "lake")
    assert after["bronze/history"] == before["bronze/history"]
    assert after["gold/failures"] == before["gold/failures"]
    assert_exact(sqlite_driver, tmp_path / "lake")
